"""The formula of strength is written twice, in Python and in SQL, and says the same."""

import random
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from lorebank_server.domain.quality import Standing, assess

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


async def test_sql_and_python_agree_on_strength(database):
    dice = random.Random(7)
    rows = [
        (policy, worth, half_life, NOW - timedelta(days=age, microseconds=dice.randrange(10**6)))
        for policy in ("bayes-v2", "none")
        for half_life in (None, 1e-6, 0.01, 30.0, 90.0, 36_500.0, dice.uniform(1, 400))
        for age in (-3.0, 0.0, 0.5, 90.0, 365.25, 20_000.0, 700_000.0, dice.uniform(0, 1000))
        for worth in (0.05, 0.7, 1.0, dice.random())
    ]
    connection = await asyncpg.connect(database)
    try:
        computed = await connection.fetch(
            """
            select strength(r.worth, r.half_life, r.since, $5, r.policy) as strength
            from unnest($1::text[], $2::float8[], $3::float8[], $4::timestamptz[])
                with ordinality r(policy, worth, half_life, since, position)
            order by r.position
            """,
            *[list(column) for column in zip(*rows, strict=True)],
            NOW,
        )
    finally:
        await connection.close()
    expected = [
        assess(Standing(policy, worth, half_life, since), now=NOW, stale_threshold=0.25).strength
        for policy, worth, half_life, since in rows
    ]
    assert [pytest.approx(value, abs=1e-9) for value in expected] == [row["strength"] for row in computed]
