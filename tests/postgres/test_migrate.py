"""Bringing a database to the schema: once, whole or not at all, and never backwards."""

import asyncio
from typing import Any

import asyncpg
import pytest

from lorebank_server.operations.spaces import default_space
from lorebank_server.postgres import migrate as migrate_module
from lorebank_server.postgres.connection import DatabaseRefusedError
from lorebank_server.postgres.migrate import Migration, SchemaError, migrate, migrations

FIRST_SPACE = default_space("default")


@pytest.fixture
async def look(empty_database, connect) -> Any:
    """A connection to the empty database."""
    return await connect(empty_database)


async def applied(connection) -> list[tuple[int, str]]:
    rows = await connection.fetch("select number, name from schema_migrations order by number")
    return [tuple(row) for row in rows]


def numbered(found) -> list[tuple[int, str]]:
    return [(migration.number, migration.name) for migration in found]


def test_the_files_are_numbered_from_one_without_a_gap():
    assert list(range(1, len(migrations()) + 1)) == [migration.number for migration in migrations()]


async def test_an_empty_database_gets_everything_and_then_nothing_more(empty_database, look):
    missing = await migrate(empty_database, first_space=FIRST_SPACE, only_check=True)
    untouched = await look.fetchval("select to_regclass('schema_migrations')")
    first = await migrate(empty_database, first_space=FIRST_SPACE)
    second = await migrate(empty_database, first_space=default_space("another"))
    assert (migrations(), None) == (missing, untouched)
    assert (migrations(), []) == (first, second)
    assert numbered(migrations()) == await applied(look)
    assert ["default"] == [row["id"] for row in await look.fetch("select id from spaces")]


async def test_of_servers_that_start_together_one_migrates_and_the_others_wait(empty_database, look):
    done = await asyncio.gather(*(migrate(empty_database, first_space=FIRST_SPACE) for _ in range(4)))
    assert [[], [], [], migrations()] == sorted(done, key=len)
    assert numbered(migrations()) == await applied(look)
    assert 1 == await look.fetchval("select count(*) from spaces")


async def test_a_newer_schema_is_left_alone(empty_database, look):
    await migrate(empty_database, first_space=FIRST_SPACE)
    later = len(migrations()) + 1
    await look.execute("insert into schema_migrations (number, name) values ($1, 'later')", later)
    with pytest.raises(SchemaError) as caught:
        await migrate(empty_database, first_space=FIRST_SPACE)
    assert "SCHEMA_TOO_NEW" == caught.value.reason
    assert f"has schema {later}; this server knows schemas up to {later - 1}" in caught.value.message


async def test_a_migration_that_fails_leaves_no_trace_and_may_be_mended(empty_database, look, monkeypatch):
    known = migrations()
    number = known[-1].number + 1
    broken = Migration(number, "halves", "create table half (whole int); insert into half values (1 / 0);")
    mended = Migration(number, "halves", "create table half (whole int);")
    monkeypatch.setattr(migrate_module, "migrations", lambda: [*known, broken])
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(empty_database, first_space=FIRST_SPACE)
    assert None is await look.fetchval("select to_regclass('half')")
    assert numbered(known) == await applied(look)
    monkeypatch.setattr(migrate_module, "migrations", lambda: [*known, mended])
    assert [mended] == await migrate(empty_database, first_space=FIRST_SPACE)
    assert None is not await look.fetchval("select to_regclass('half')")


async def test_without_pgvector_it_says_how_to_get_it(empty_database, look):
    await look.execute("create role plain_owner login createrole")
    name = await look.fetchval("select current_database()")
    await look.execute(f"alter database {name} owner to plain_owner")
    try:
        with pytest.raises(SchemaError) as caught:
            await migrate(empty_database.replace("lorebank@", "plain_owner@"), first_space=FIRST_SPACE)
    finally:
        await look.execute(f"alter database {name} owner to lorebank")
        await look.execute("drop role plain_owner")
    assert "PGVECTOR_MISSING" == caught.value.reason
    assert "'create extension vector'" in caught.value.message


async def test_a_role_that_is_not_there_is_refused_in_words(empty_database):
    with pytest.raises(DatabaseRefusedError) as caught:
        await migrate(empty_database.replace("lorebank@", "nobody_here@"), first_space=FIRST_SPACE)
    assert 'role "nobody_here" does not exist' in caught.value.message
