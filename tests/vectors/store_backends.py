"""Where a store may run: in this process, over the wire, and on a real server where one is named."""

import os
import uuid
from contextlib import asynccontextmanager

from qdrant_client import AsyncQdrantClient
from vector_points import GENERATION

from bench.qdrant_double import QdrantDouble
from lorebank_server.vectors import QdrantSpec
from lorebank_server.vectors.qdrant import QdrantStore

REAL_SERVER = os.environ.get("LOREBANK_TEST_QDRANT_URL")
BACKENDS = ["local", "wire"] + (["server"] if REAL_SERVER else [])


@asynccontextmanager
async def open_store(backend):
    spec = QdrantSpec(url=REAL_SERVER or "http://unused", prefix=f"test-{uuid.uuid4().hex}", exact=True)
    if backend == "local":
        store = QdrantStore(AsyncQdrantClient(":memory:"), spec)
        yield store
    elif backend == "wire":
        async with QdrantDouble() as double:
            store = QdrantStore.connect(QdrantSpec(url=double.url))
            yield store
            await store.aclose()
    else:
        store = QdrantStore.connect(spec)
        yield store
        await store.drop(GENERATION)
    await store.aclose()
