"""An outbox that is on, drainers to run by hand, and servers on a vector store outside of Postgres."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest
from outbox_world import OpenWorld, World
from stored_points import Disk, StoreDouble

from lorebank import AsyncClient
from lorebank_server.config import Settings
from lorebank_server.serving import running_server


@pytest.fixture
async def open_world(database_factory, embedder) -> OpenWorld:
    """Starts servers: on pgvector, or ``outside`` on the double; ``dsn`` and ``store`` reuse what is there."""

    @asynccontextmanager
    async def start(
        *, outside: bool = False, dsn: str | None = None, store: StoreDouble | None = None
    ) -> AsyncIterator[World]:
        async with AsyncExitStack() as stack:
            address = dsn or await database_factory()
            double = store or StoreDouble(Disk())
            settings = Settings(listen="127.0.0.1:0", database_pool_size=6, drain_grace_s=5.0)
            running = await stack.enter_async_context(
                running_server(settings, address, embedder=embedder, vector_store=double if outside else None)
            )
            client = await stack.enter_async_context(AsyncClient(f"127.0.0.1:{running.port}"))
            connection = await asyncpg.connect(address)
            stack.push_async_callback(connection.close)
            yield World(running, client, address, connection, double, stack)

    return start


@pytest.fixture
async def world(open_world: OpenWorld) -> AsyncIterator[World]:
    """A server whose changes are enqueued while nobody drains."""
    async with open_world() as opened:
        await opened.outbox()
        yield opened


@pytest.fixture
async def outside(open_world: OpenWorld) -> AsyncIterator[World]:
    """A server that searches the double."""
    async with open_world(outside=True) as opened:
        yield opened
