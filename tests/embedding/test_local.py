"""The packaged model, run for real."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.embedding.local import (
    MAX_BATCH_TEXTS,
    MAX_BATCH_TOKENS,
    OnnxEmbedder,
    plan_batches,
)
from lorebank_server.embedding.model_files import packaged_model

MIXED_TEXTS = [f"fact {number}: " + "the build server was moved " * (number * 7 % 30) for number in range(70)]


@pytest.fixture(scope="module")
async def embedder() -> AsyncIterator[OnnxEmbedder]:
    embedder = await OnnxEmbedder.create(packaged_model, threads=2)
    yield embedder
    await embedder.aclose()


async def test_names_the_model_and_its_dimensions(embedder: OnnxEmbedder):
    assert ("all-MiniLM-L6-v2-int8", 384) == (embedder.model, embedder.dimensions)


async def test_similar_texts_are_closer_than_different_ones(embedder: OnnxEmbedder):
    anchor, near, far = await embedder.embed_documents(
        [
            "The deployment failed because the disk was full.",
            "Rollout broke: no space left on the device.",
            "Anna prefers tea with lemon in the afternoon.",
        ]
    )
    assert anchor @ near > anchor @ far + 0.2


@pytest.mark.parametrize("text", ["", "one", "Анна переносит сервер сборки в пятницу", "日本語 🙂", "word " * 2_000])
async def test_any_text_gives_a_read_only_float32_vector_of_unit_length(embedder: OnnxEmbedder, text: str):
    vector = await embedder.embed_query(text)
    assert (np.float32, (384,), False) == (vector.dtype, vector.shape, vector.flags.writeable)
    assert pytest.approx(1, abs=1e-6) == float(np.linalg.norm(vector))


async def test_words_beyond_the_limit_do_not_count(embedder: OnnxEmbedder):
    start = "memory " * 300
    np.testing.assert_array_equal(await embedder.embed_query(start), await embedder.embed_query(start + "x " * 4_000))


async def test_words_within_the_limit_count(embedder: OnnxEmbedder):
    start = "memory " * 200
    assert not np.allclose(await embedder.embed_query(start), await embedder.embed_query(start + "elephants"))


async def test_different_cyrillic_texts_differ(embedder: OnnxEmbedder):
    first, second = await embedder.embed_documents(["сервер сборки", "любимый зелёный чай"])
    assert first @ second < 0.95


async def test_documents_keep_their_order_and_do_not_depend_on_their_batch(embedder: OnnxEmbedder):
    together = await embedder.embed_documents(MIXED_TEXTS)
    alone = [await embedder.embed_query(text) for text in MIXED_TEXTS]
    np.testing.assert_allclose(np.array(together), np.array(alone), atol=1e-5)


async def test_no_documents_give_no_vectors(embedder: OnnxEmbedder):
    assert [] == await embedder.embed_documents([])


async def test_concurrent_queries_each_get_their_own_vector(embedder: OnnxEmbedder):
    texts = MIXED_TEXTS[:20]
    at_once = await asyncio.gather(*(embedder.embed_query(text) for text in texts))
    in_turn = [await embedder.embed_query(text) for text in texts]
    np.testing.assert_allclose(np.array(at_once), np.array(in_turn), atol=1e-5)


async def test_a_query_overtakes_documents_that_are_not_running_yet():
    embedder = await OnnxEmbedder.create(packaged_model, threads=1)
    finished: list[str] = []

    async def run(name: str, work) -> None:
        await work
        finished.append(name)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run("documents", embedder.embed_documents(MIXED_TEXTS)))
        tasks.create_task(run("more documents", embedder.embed_documents(MIXED_TEXTS)))
        tasks.create_task(run("query", embedder.embed_query("who moved the build server?")))
    await embedder.aclose()
    assert "query" == finished[0]


async def test_a_closed_embedder_is_unavailable():
    embedder = await OnnxEmbedder.create(packaged_model, threads=1)
    await embedder.aclose()
    await embedder.aclose()
    with pytest.raises(EmbedderUnavailableError):
        await embedder.embed_query("anything")
    with pytest.raises(EmbedderUnavailableError):
        await embedder.embed_documents(["anything"])


def test_batches_hold_every_position_once_within_their_bounds():
    lengths = [number * 37 % 256 + 1 for number in range(500)] + [3] * 100
    batches = plan_batches(lengths)
    assert list(range(600)) == sorted(position for batch in batches for position in batch)
    for batch in batches:
        padded = len(batch) * max(lengths[position] for position in batch)
        assert len(batch) <= MAX_BATCH_TEXTS
        assert len(batch) == 1 or padded <= MAX_BATCH_TOKENS


def test_no_lengths_make_no_batches():
    assert [] == plan_batches([])
