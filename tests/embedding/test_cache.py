"""The cache around an embedder."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.embedding import CachedEmbedder
from lorebank_server.embedding.failures import unavailable
from lorebank_server.ports.embedder import Vector


class GatedEmbedder:
    """Answers once its gate is open, and remembers what it was asked."""

    model = "gated"
    dimensions = 2

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.cancelled: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()
        self.failing = False
        self.closed = False

    async def embed_query(self, text: str) -> Vector:
        return (await self.embed_documents([text]))[0]

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        self.calls.append(list(texts))
        self.entered.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(list(texts))
            raise
        if self.failing:
            raise unavailable("The embedding model failed; retry.")
        return [vector_of(text) for text in texts]

    async def aclose(self) -> None:
        self.closed = True


def vector_of(text: str) -> Vector:
    return np.array([len(text), 1], dtype=np.float32)


@pytest.fixture
def inner() -> GatedEmbedder:
    return GatedEmbedder()


@pytest.fixture
def cached(inner: GatedEmbedder) -> CachedEmbedder:
    return CachedEmbedder(inner, query_cache_size=2, document_cache_size=2)


async def turn() -> None:
    """Let every ready task run a step."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_says_what_the_wrapped_embedder_says(cached: CachedEmbedder):
    assert ("gated", 2) == (cached.model, cached.dimensions)


async def test_a_known_query_is_not_embedded_again(inner: GatedEmbedder, cached: CachedEmbedder):
    first = await cached.embed_query("a")
    assert first is await cached.embed_query("a")
    assert [["a"]] == inner.calls
    assert (1, 1) == (cached.queries.hits, cached.queries.misses)


async def test_the_least_recently_used_query_is_forgotten(inner: GatedEmbedder, cached: CachedEmbedder):
    for text in ["a", "b", "a", "c", "a", "b"]:
        await cached.embed_query(text)
    assert [["a"], ["b"], ["c"], ["b"]] == inner.calls


async def test_only_unknown_documents_are_embedded_each_once_and_in_order(inner: GatedEmbedder, cached: CachedEmbedder):
    await cached.embed_documents(["bb"])
    vectors = await cached.embed_documents(["ccc", "bb", "a", "ccc"])
    assert [["bb"], ["ccc", "a"]] == inner.calls
    assert [3, 2, 1, 3] == [int(vector[0]) for vector in vectors]
    assert (2, 3) == (cached.documents.hits, cached.documents.misses)


async def test_more_documents_than_the_cache_holds_are_all_answered(cached: CachedEmbedder):
    vectors = await cached.embed_documents(["a", "bb", "ccc", "dddd"])
    assert [1, 2, 3, 4] == [int(vector[0]) for vector in vectors]


async def test_queries_and_documents_are_kept_apart(inner: GatedEmbedder, cached: CachedEmbedder):
    await cached.embed_query("a")
    await cached.embed_documents(["a"])
    assert [["a"], ["a"]] == inner.calls


async def test_no_documents_ask_nobody(inner: GatedEmbedder, cached: CachedEmbedder):
    assert [] == await cached.embed_documents([])
    assert [] == inner.calls


async def test_a_size_of_zero_keeps_nothing(inner: GatedEmbedder):
    cached = CachedEmbedder(inner, query_cache_size=0)
    for _ in range(2):
        await cached.embed_query("a")
    assert [["a"], ["a"]] == inner.calls


async def test_concurrent_equal_queries_are_embedded_once(inner: GatedEmbedder, cached: CachedEmbedder):
    inner.gate.clear()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(cached.embed_query("a"))
        await inner.entered.wait()
        inner.gate.set()
    assert [["a"]] == inner.calls
    assert (9, 1) == (cached.queries.hits, cached.queries.misses)


async def test_overlapping_documents_share_what_is_under_way(inner: GatedEmbedder, cached: CachedEmbedder):
    inner.gate.clear()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(cached.embed_documents(["a", "bb"]))
        await turn()
        second = tasks.create_task(cached.embed_documents(["bb", "ccc"]))
        await turn()
        inner.gate.set()
    assert [["a", "bb"], ["ccc"]] == inner.calls
    assert [[1, 2], [2, 3]] == [[int(vector[0]) for vector in task.result()] for task in (first, second)]


async def test_one_cancelled_waiter_leaves_the_others_waiting(inner: GatedEmbedder, cached: CachedEmbedder):
    inner.gate.clear()
    first = asyncio.create_task(cached.embed_query("a"))
    second = asyncio.create_task(cached.embed_query("a"))
    await turn()
    first.cancel()
    await turn()
    assert first.cancelled()
    inner.gate.set()
    np.testing.assert_array_equal(vector_of("a"), await second)
    assert [["a"]] == inner.calls


async def test_the_last_waiter_takes_the_computation_along(inner: GatedEmbedder, cached: CachedEmbedder):
    inner.gate.clear()
    waiters = [asyncio.create_task(cached.embed_query("a")) for _ in range(2)]
    await inner.entered.wait()
    for waiter in waiters:
        waiter.cancel()
    await asyncio.wait(waiters)
    inner.gate.set()
    np.testing.assert_array_equal(vector_of("a"), await cached.embed_query("a"))
    assert [["a"], ["a"]] == inner.calls
    assert [["a"]] == inner.cancelled


async def test_cancelling_before_the_computation_began_is_clean(cached: CachedEmbedder):
    waiter = asyncio.create_task(cached.embed_query("a"))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait([waiter])
    await turn()
    assert waiter.cancelled()
    np.testing.assert_array_equal(vector_of("a"), await cached.embed_query("a"))


async def test_every_waiter_learns_of_a_failure_and_nobody_remembers_it(inner: GatedEmbedder, cached: CachedEmbedder):
    inner.failing = True
    results = await asyncio.gather(*(cached.embed_query("a") for _ in range(3)), return_exceptions=True)
    assert [EmbedderUnavailableError] * 3 == [type(result) for result in results]
    inner.failing = False
    np.testing.assert_array_equal(vector_of("a"), await cached.embed_query("a"))
    assert 2 == len(inner.calls)


async def test_closing_fails_waiters_and_closes_the_wrapped_embedder(inner: GatedEmbedder, cached: CachedEmbedder):
    inner.gate.clear()
    waiter = asyncio.create_task(cached.embed_query("a"))
    await inner.entered.wait()
    await cached.aclose()
    with pytest.raises(EmbedderUnavailableError):
        await waiter
    assert inner.closed
