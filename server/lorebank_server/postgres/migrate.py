"""Brings a database to the schema that this server knows."""

import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import asyncpg

from lorebank_server.domain.errors import LorebankError
from lorebank_server.domain.space import Space
from lorebank_server.postgres.connection import owner_connection

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_LOCK = 7_305_808_869_228_536_142
LOCK_TIMEOUT = "10min"


class SchemaError(LorebankError):
    """The database's schema is not one that this server can work with."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    sql: str


def migrations() -> list[Migration]:
    """Every migration in order; the numbers are 1, 2, 3 and so on."""
    folder = resources.files("lorebank_server.postgres.migrations")
    found = []
    for entry in folder.iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.number)


async def migrate(dsn: str, *, first_space: Space, only_check: bool = False) -> list[Migration]:
    """Apply what is missing, each file in a transaction of its own, and create the first space in an empty database.

    Several servers may call this at once: one works, the others wait.

    Args:
        dsn: Connects as the role that is to own the schema.
        first_space: Written when there is no space at all.
        only_check: Report what is missing and change nothing.

    Returns:
        The migrations applied (or missing), in order.

    Raises:
        SchemaError: The database is newer than this server, or lacks pgvector.
        DatabaseRefusedError: The role may not enter the database or make the schema.
        StorageUnavailableError: Postgres is away.
    """
    async with owner_connection(dsn) as connection:
        await connection.execute(f"set lock_timeout = '{LOCK_TIMEOUT}'; set statement_timeout = 0")
        await connection.execute("select pg_advisory_lock($1)", _LOCK)
        return await _apply(connection, first_space=first_space, only_check=only_check)


async def _apply(connection: Any, *, first_space: Space, only_check: bool) -> list[Migration]:
    known = migrations()
    applied = await _applied(connection)
    if applied and max(applied) > known[-1].number:
        raise SchemaError(
            f"The database has schema {max(applied)}; this server knows schemas up to {known[-1].number}. "
            "Start the newer server it was last used with, or restore a backup from before that upgrade.",
            reason="SCHEMA_TOO_NEW",
        )
    missing = [migration for migration in known if migration.number not in applied]
    if only_check:
        return missing
    if not applied:
        await _require_pgvector(connection)
        await connection.execute(
            "create table if not exists schema_migrations ("
            "number int primary key, name text not null, apply_time timestamptz not null default now())"
        )
    for migration in missing:
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                "insert into schema_migrations (number, name) values ($1, $2)", migration.number, migration.name
            )
    await connection.execute(
        "insert into spaces (id, display_name, half_life_days, default_confidence, stale_threshold, quality_policy, "
        "language, create_time) select $1, $2, $3, $4, $5, $6, $7, now() where not exists (select from spaces)",
        first_space.id,
        first_space.display_name,
        first_space.half_life_days,
        first_space.default_confidence,
        first_space.stale_threshold,
        first_space.quality_policy,
        first_space.language,
    )
    return missing


async def _applied(connection: Any) -> set[int]:
    if await connection.fetchval("select to_regclass('schema_migrations')") is None:
        return set()
    return {row["number"] for row in await connection.fetch("select number from schema_migrations")}


async def _require_pgvector(connection: Any) -> None:
    try:
        await connection.execute("create extension if not exists vector")
    except asyncpg.PostgresError as error:
        raise SchemaError(
            "This Postgres has no pgvector extension that the given role may create. Install pgvector 0.7 or newer, "
            "or have a superuser run 'create extension vector' in this database.",
            reason="PGVECTOR_MISSING",
        ) from error
