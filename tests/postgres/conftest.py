"""Databases without a schema, and many memories at once."""

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest

_NUMBERS = itertools.count(1)

_COPIES = """
with copies as materialized (
    select m.uid as original, gen_random_uuid() as uid from memories m cross join generate_series(1, $1)
), stored as (
    insert into memories select (jsonb_populate_record(m, jsonb_build_object('uid', c.uid, 'id', 'copy-' || c.uid))).*
    from copies c join memories m on m.uid = c.original
)
insert into embeddings select (jsonb_populate_record(e, jsonb_build_object('memory', c.uid))).*
from copies c join embeddings e on e.memory = c.original
"""


Connect = Callable[[str], Awaitable[asyncpg.Connection]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects until the end of the test."""
    async with AsyncExitStack() as stack:

        async def opened(dsn: str) -> asyncpg.Connection:
            connection = await asyncpg.connect(dsn)
            stack.push_async_callback(connection.close)
            return connection

        yield opened


@pytest.fixture
async def empty_database(postgres, connect: Connect) -> AsyncIterator[str]:
    """The address of a database in which there is nothing at all."""
    name = f"empty_{os.getpid()}_{next(_NUMBERS)}"
    connection = await connect(postgres.dsn)
    await connection.execute(f"create database {name}")
    yield postgres.dsn.replace("/lorebank?", f"/{name}?")
    await connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def copy_memories(connect: Connect) -> Callable[[str, int], Awaitable[None]]:
    """Adds copies of every memory and its vector, as a bulk load would."""

    async def copy(dsn: str, times: int) -> None:
        connection = await connect(dsn)
        # The vectors refer to memories of the same statement.
        await connection.execute("set session_replication_role = replica")
        await connection.execute(_COPIES, times)
        await connection.execute("select pg_stat_force_next_flush()")

    return copy
