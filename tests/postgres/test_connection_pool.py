"""The pool of connections, on real Postgres."""

import asyncio

import pytest

from bench.service import until
from lorebank_server.postgres.pool import ConnectionPool, open_pool


@pytest.fixture
async def pool(database):
    opened = await open_pool(database, size=1)
    yield opened
    opened.terminate()


async def hold(pool: ConnectionPool, release: asyncio.Event) -> None:
    async with pool.acquire(timeout=10.0):
        await release.wait()


async def test_who_waits_for_a_connection_is_counted_until_it_is_there(pool):
    release = asyncio.Event()
    async with pool.acquire(timeout=1.0) as connection:
        assert (1, 0, 1, 0) == (pool.get_size(), pool.get_idle_size(), pool.get_max_size(), pool.waiting)
        waiting = [asyncio.create_task(hold(pool, release)) for _ in range(2)]
        await until(lambda: pool.waiting == 2)
        assert 1 == await connection.fetchval("select 1")
    await until(lambda: pool.waiting == 1)
    release.set()
    await asyncio.gather(*waiting)
    assert (1, 0) == (pool.get_idle_size(), pool.waiting)


async def test_who_gives_up_no_longer_waits(pool):
    async with pool.acquire(timeout=1.0):
        with pytest.raises(TimeoutError):
            async with pool.acquire(timeout=0.01):
                pass
        assert 0 == pool.waiting


async def test_a_failure_gives_the_connection_back(pool):
    with pytest.raises(ValueError, match="the cat"):
        async with pool.acquire(timeout=1.0):
            raise ValueError("the cat")
    assert 1 == pool.get_idle_size()
