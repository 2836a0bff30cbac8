"""Vectors of one model at a time, and the way to another."""

from collections.abc import Sequence

import numpy as np
import pytest

from lorebank import AsyncClient
from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.postgres.embedding_models import EmbeddingModelMismatchError, adopt_models, reindex

DIMENSIONS = 8
COPIES = 300


class ToyEmbedder:
    """Answers as often as it is told to, with the number of letters in every dimension."""

    model = "toy"
    dimensions = DIMENSIONS

    def __init__(self, calls: int = 1_000_000) -> None:
        self.calls_left = calls

    async def embed_query(self, text: str) -> np.ndarray:
        (vector,) = await self.embed_documents([text])
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> list[np.ndarray]:
        if self.calls_left == 0:
            raise EmbedderUnavailableError("gone", reason="EMBEDDER_UNAVAILABLE")
        self.calls_left -= 1
        return [np.full(DIMENSIONS, len(text), dtype=np.float32) for text in texts]

    async def aclose(self) -> None:
        pass


@pytest.fixture
async def filled(database, server_factory, copy_memories) -> str:
    """The address of a database with 301 memories of the packaged model."""
    async with server_factory(dsn=database) as live, AsyncClient(live.address) as client:
        await client.store("The projector needs the blue cable.")
    await copy_memories(database, COPIES)
    return database


@pytest.fixture
def vectors(connect):
    """Counts vectors by model and length."""

    async def count(dsn: str) -> dict[tuple[str, int], int]:
        connection = await connect(dsn)
        rows = await connection.fetch(
            "select m.model, vector_dims(e.embedding) as length, count(*) as n "
            "from embeddings e join embedding_models m on m.number = e.model group by 1, 2"
        )
        return {(row["model"], row["length"]): row["n"] for row in rows}

    return count


async def test_a_model_keeps_its_number(database, embedder):
    first, again, other = [(await adopt_models(database, [each]))[0] for each in (embedder, embedder, ToyEmbedder())]
    assert first == again
    assert first != other
    assert [other, first] == await adopt_models(database, [ToyEmbedder(), embedder])


async def test_starts_of_servers_use_up_no_numbers(database, embedder):
    for _ in range(3):
        await adopt_models(database, [embedder])
    (other,) = await adopt_models(database, [ToyEmbedder()])
    assert 2 == other


async def test_a_space_without_vectors_is_searched_by_the_first_model(database, embedder, connect):
    connection = await connect(database)
    for models in ([embedder, ToyEmbedder()], [ToyEmbedder(), embedder]):
        numbers = await adopt_models(database, models)
        assert numbers[0] == await connection.fetchval("select embedding_model from spaces")


async def test_vectors_of_another_model_are_refused_with_three_ways_out(filled, embedder):
    with pytest.raises(EmbeddingModelMismatchError) as caught:
        await adopt_models(filled, [ToyEmbedder()])
    assert "EMBEDDING_MODEL_MISMATCH" == caught.value.reason
    assert (
        f"of the model {embedder.model} (384 dimensions), but this server is set to toy (8 dimensions)"
        in caught.value.message
    )
    for way_out in ("LOREBANK_EMBEDDING_*", "lorebank reindex --model", "lorebank reindex --direct"):
        assert way_out in caught.value.message
    assert 2 == len(await adopt_models(filled, [ToyEmbedder(), embedder]))


async def test_reindexing_replaces_every_vector_and_tells_how_far_it_is(filled, vectors):
    told: list[tuple[int, int]] = []
    done = await reindex(filled, ToyEmbedder(), progress=lambda *numbers: told.append(numbers))
    assert COPIES + 1 == done
    assert {("toy", DIMENSIONS): COPIES + 1} == await vectors(filled)
    assert [(0, COPIES + 1), (256, COPIES + 1), (COPIES + 1, COPIES + 1)] == told
    assert 0 == await reindex(filled, ToyEmbedder(), progress=lambda *_: None)
    assert await adopt_models(filled, [ToyEmbedder()])


async def test_an_interrupted_reindexing_leaves_the_old_model_in_use_and_goes_on_where_it_was(
    filled, embedder, vectors
):
    with pytest.raises(EmbedderUnavailableError):
        await reindex(filled, ToyEmbedder(calls=1), progress=lambda *_: None)
    assert {("toy", DIMENSIONS): 256, (embedder.model, 384): COPIES + 1} == await vectors(filled)
    assert await adopt_models(filled, [embedder])
    with pytest.raises(EmbeddingModelMismatchError):
        await adopt_models(filled, [ToyEmbedder()])
    assert COPIES + 1 - 256 == await reindex(filled, ToyEmbedder(), progress=lambda *_: None)
    assert {("toy", DIMENSIONS): COPIES + 1} == await vectors(filled)


async def test_a_memory_stored_while_the_model_was_away_is_embedded(filled, connect, vectors):
    connection = await connect(filled)
    await connection.execute("delete from embeddings where memory = (select uid from memories order by uid limit 1)")
    assert COPIES + 1 == await reindex(filled, ToyEmbedder(), progress=lambda *_: None)
    assert {("toy", DIMENSIONS): COPIES + 1} == await vectors(filled)
