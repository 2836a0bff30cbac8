"""Servers with two models, on pgvector or on the double of Qdrant."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest
from reindexing_world import FIRST, SECOND, OpenWorld, WordEmbedder, World

from bench.qdrant_double import QdrantDouble
from lorebank import AsyncClient
from lorebank_server.config import Settings
from lorebank_server.operations import reindex
from lorebank_server.postgres import index_rebuild
from lorebank_server.serving import running_server


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindex, "LONGEST_FIND_S", 0.3)
    monkeypatch.setattr(reindex, "RETRY_S", 0.02)
    monkeypatch.setattr(index_rebuild, "LOOK_S", 0.02)


@pytest.fixture
async def open_world(database_factory) -> OpenWorld:
    """Starts servers; ``dsn``, ``first`` and ``second`` reuse what is there, other arguments are settings."""

    @asynccontextmanager
    async def start(
        *,
        dsn: str | None = None,
        first: WordEmbedder | None = None,
        second: WordEmbedder | None = None,
        **settings: Any,
    ) -> AsyncIterator[World]:
        async with AsyncExitStack() as stack:
            address = dsn or await database_factory()
            models = first or WordEmbedder(FIRST, 48), second or WordEmbedder(SECOND, 80)
            chosen = Settings(**{"listen": "127.0.0.1:0", "database_pool_size": 8, "drain_grace_s": 1.0, **settings})
            running = await stack.enter_async_context(
                running_server(chosen, address, embedder=models[0], next_embedder=models[1])
            )
            client = await stack.enter_async_context(AsyncClient(f"127.0.0.1:{running.port}"))
            connection = await asyncpg.connect(address)
            stack.push_async_callback(connection.close)
            yield World(running, client, connection, address, *models)

    return start


@pytest.fixture
async def double() -> AsyncIterator[QdrantDouble]:
    async with QdrantDouble() as running:
        yield running


@pytest.fixture(params=["pgvector", "qdrant"])
async def world(request, open_world: OpenWorld) -> AsyncIterator[World]:
    """A server on each of the backends."""
    async with AsyncExitStack() as stack:
        settings = {}
        if request.param == "qdrant":
            double = await stack.enter_async_context(QdrantDouble())
            settings = {"qdrant_url": double.url}
        yield await stack.enter_async_context(open_world(**settings))
