"""Servers with several models, and spaces that are searched by another one than the first."""

import shutil

import pytest
from reindexing_world import FACTS, FIRST, SECOND, OpenWorld, WordEmbedder, check_progress, eventually

from lorebank_server.config import Settings
from lorebank_server.embedding.model_files import PACKAGED_IDENTITY, packaged_model
from lorebank_server.postgres.embedding_models import EmbeddingModelMismatchError
from lorebank_server.serving import running_server


async def test_a_query_is_embedded_by_the_model_of_its_space_alone_once_that_is_known(
    open_world: OpenWorld, database: str
) -> None:
    async with open_world(dsn=database) as world:
        ids = await world.store(*FACTS)
        await world.reindex(SECOND)
    async with open_world(dsn=database) as world:
        for fact, memory in zip(FACTS, ids, strict=True):
            assert memory == await world.nearest(fact)
        assert (1, len(FACTS)) == (world.first.queries, world.second.queries)
        answer = await world.client.find(similar_to=ids[0], mode="semantic", limit=100)
        assert {*ids[1:]} == {hit.memory.id for hit in answer.hits}


async def test_new_spaces_begin_with_the_first_model(open_world: OpenWorld, database: str) -> None:
    async with open_world(dsn=database) as world:
        await world.store(*FACTS)
        await world.reindex(SECOND)
        created = await world.client.spaces.create("annexe")
        assert (FIRST, 48, 1) == (created.embedding.model, created.embedding.dimensions, created.embedding.generation)
        listed = {space.id: space.embedding.model async for space in world.client.spaces.list()}
        assert {"annexe": FIRST, "default": SECOND} == listed
    # The other way round: what was the next model becomes the first.
    async with open_world(dsn=database, first=WordEmbedder(SECOND, 80), second=WordEmbedder(FIRST, 48)) as world:
        assert SECOND == (await world.client.spaces.create("tower")).embedding.model
        assert await world.nearest(FACTS[3])


async def test_a_server_without_the_model_of_a_space_refuses_to_start(open_world: OpenWorld, database: str) -> None:
    async with open_world(dsn=database) as world:
        await world.store(*FACTS)
        await world.reindex(SECOND)
    with pytest.raises(EmbeddingModelMismatchError, match="lorebank reindex --model"):
        async with running_server(Settings(listen="127.0.0.1:0"), database, embedder=WordEmbedder(FIRST, 48)):
            pass


async def test_a_replica_without_the_model_goes_on_by_words_and_loses_nothing(
    open_world: OpenWorld, database: str
) -> None:
    other = WordEmbedder("third-words", 16)
    async with open_world(dsn=database) as world, open_world(dsn=database, second=other) as replica:
        await world.store(*FACTS)
        await world.reindex(SECOND)
        answer = await replica.client.find("mill nine Monday")
        assert answer.hits
        assert list(answer.degraded)
        stored = await replica.client.store("The castle has a moat.")
        assert stored.warnings

        async def embedded() -> bool:
            return not await world.bare()

        await eventually(embedded)
        assert stored.memory.id == await world.nearest("castle moat")
        assert {(SECOND, 80): len(FACTS) + 1} == await world.vectors()


async def test_a_space_moves_to_the_packaged_model_which_is_loaded_then(open_world: OpenWorld) -> None:
    async with open_world() as world:
        (memory, *_) = await world.store("The treasurer approves invoices above 500 euros.", *FACTS)
        check_progress(await world.reindex(PACKAGED_IDENTITY))
        assert {(PACKAGED_IDENTITY, 384): len(FACTS) + 1} == await world.vectors()
        assert memory == await world.nearest("who has to sign large bills?")
        check_progress(await world.reindex(SECOND))
        assert {(SECOND, 80): len(FACTS) + 1} == await world.vectors()


async def test_models_of_one_name_are_told_apart_by_their_dimensions(open_world: OpenWorld, database: str) -> None:
    async with open_world(dsn=database, second=WordEmbedder(FIRST, 80)) as world:
        await world.store(*FACTS)
        check_progress(await world.reindex(FIRST))
        assert {(FIRST, 48): len(FACTS)} == await world.vectors()
        check_progress(await world.reindex(f"{FIRST} (80 dimensions)"))
        assert {(FIRST, 80): len(FACTS)} == await world.vectors()
        check_progress(await world.reindex(FIRST))
        assert {(FIRST, 80): len(FACTS)} == await world.vectors()


async def test_the_next_model_is_read_from_the_settings(database: str, embedder, tmp_path) -> None:
    folder = tmp_path / "next-model"
    folder.mkdir()
    shutil.copy(packaged_model().model, folder / "model.onnx")
    shutil.copy(packaged_model().tokenizer, folder / "tokenizer.json")
    settings = Settings(listen="127.0.0.1:0", database_pool_size=4, next_embedding_model_dir=folder)
    async with running_server(settings, database, embedder=embedder) as running:
        first, second = running.services.embedders.labels
    assert f"{PACKAGED_IDENTITY} (384 dimensions)" == first
    assert second.startswith("next-model-")
