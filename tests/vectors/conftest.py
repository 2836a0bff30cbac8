"""Stores on the client's local mode, over the wire, and on a real server where one is named."""

import pytest
from store_backends import BACKENDS, open_store
from vector_points import GENERATION, many_points

from bench.qdrant_double import QdrantDouble
from lorebank_server.vectors import QdrantSpec
from lorebank_server.vectors.qdrant import QdrantStore


@pytest.fixture(params=BACKENDS)
async def store(request):
    """An empty store with room for one generation."""
    async with open_store(request.param) as opened:
        assert await opened.prepare(GENERATION)
        yield opened


@pytest.fixture(scope="module", params=BACKENDS)
async def filled(request):
    """A store with ``many_points``, for reading."""
    async with open_store(request.param) as opened:
        assert await opened.prepare(GENERATION)
        await opened.upsert(GENERATION, many_points())
        yield opened


@pytest.fixture
async def double():
    async with QdrantDouble() as running:
        yield running


@pytest.fixture
async def connect(double):
    """Opens stores on the double; arguments are settings."""
    opened = []

    def open_on_double(**settings):
        store = QdrantStore.connect(QdrantSpec(**{"url": double.url, **settings}))
        opened.append(store)
        return store

    yield open_on_double
    for store in opened:
        await store.aclose()
