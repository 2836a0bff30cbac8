"""Postgres, the truth: pool, repositories, migrations and the embedded launcher."""
