"""A Postgres that somebody else runs, through a role that is no superuser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from bench.service import Service, service_folder
from lorebank import AsyncClient
from lorebank_server.postgres import embedded

FACT = "The spare key of the archive hangs behind the door."


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def prepare(superuser_dsn: str) -> str:
    """Address of an empty database with pgvector, as its owner, a role that may create roles and nothing else."""
    async with connected(superuser_dsn) as superuser:
        await superuser.execute("create role outside_owner login createrole")
        await superuser.execute("create database outside owner outside_owner")
    async with connected(superuser_dsn.replace("/lorebank?", "/outside?")) as superuser:
        await superuser.execute("create extension vector")
    return superuser_dsn.replace("lorebank@/lorebank?", "outside_owner@/outside?")


@pytest.fixture
async def shared_cluster(postgres) -> AsyncIterator[str]:
    """Where the role lorebank_app was there before, and belongs to somebody else."""
    yield await prepare(postgres.dsn)
    async with connected(postgres.dsn) as superuser:
        await superuser.execute("drop database outside with (force)")
        await superuser.execute("drop owned by outside_owner")
        await superuser.execute("drop role outside_owner")


async def test_it_serves_and_row_level_security_holds(service: Service):
    with service_folder() as folder, embedded.start(folder / "data", settings={"fsync": "off"}) as postgres:
        outside = await prepare(postgres.dsn)
        service.start(LOREBANK_DATABASE_URL=outside)
        await service.ready()
        async with AsyncClient(service.address) as client:
            stored = await client.store(FACT, scope="user")
            found = await client.find("where can I get into the archive?")
        assert 0 == service.stop()
        async with connected(outside) as connection:
            await connection.execute("set role lorebank_app")
            seen = [
                await visible(connection, space=space, owner=owner)
                for space, owner in (("1", "local"), ("1", "somebody"), ("2", "local"), ("", "local"))
            ]
    assert not service.data_dir.exists()
    assert [stored.memory.id] == [hit.memory.id for hit in found.hits]
    assert [1, 0, 0, 0] == seen


async def test_a_role_that_lacks_a_right_is_told_which(postgres, shared_cluster, lorebank):
    refused = await lorebank("serve", LOREBANK_DATABASE_URL=shared_cluster, LOREBANK_LISTEN="127.0.0.1:0")
    async with connected(postgres.dsn) as superuser:
        await superuser.execute("grant lorebank_app to outside_owner")
    granted = await lorebank("migrate", LOREBANK_DATABASE_URL=shared_cluster)
    assert 78 == refused.code
    assert 'permission denied to grant role \\"lorebank_app\\"' in refused.err
    assert "is a member of the role lorebank_app" in refused.err
    assert (0, "") == (granted.code, granted.err)


async def visible(connection: asyncpg.Connection, *, space: str, owner: str) -> int:
    """How many memories a caller sees; of revisions and vectors it must be as many."""
    await connection.execute(
        "select set_config('lorebank.space', $1, false), set_config('lorebank.owner', $2, false), "
        "set_config('lorebank.role', '4', false)",
        space,
        owner,
    )
    tables = ("memories", "revisions", "embeddings")
    (count,) = {await connection.fetchval(f"select count(*) from {table}") for table in tables}
    return int(count)
