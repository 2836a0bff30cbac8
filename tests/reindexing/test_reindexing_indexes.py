"""What searches the vectors follows them: the approximate index in Postgres, the collection in Qdrant."""

import asyncio

import pytest
from qdrant_client import AsyncQdrantClient, models
from reindexing_world import FACTS, FIRST, SECOND, OpenWorld, World, check_progress, eventually

from bench.qdrant_double import QdrantDouble
from lorebank import Unavailable
from lorebank_server.postgres import outbox_rebuild, vector_indexer

_INDEXES = """
select c.relname, c.oid from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indisvalid and i.indrelid = 'embeddings'::regclass and c.relname like 'embeddings_near%'
"""


async def _indexes(world: World) -> dict[str, int]:
    return dict(await world.connection.fetch(_INDEXES))


async def test_the_index_of_the_new_vectors_is_there_at_the_switch_and_the_old_one_goes(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_indexer, "BUILD_FROM", 10)
    monkeypatch.setattr(vector_indexer, "INTERVAL_S", 0.02)
    async with open_world() as world:
        ids = await world.store(*FACTS)
        check_progress(await world.reindex())
        before = await _indexes(world)
        assert ["embeddings_near_1_1"] == list(before)
        check_progress(await world.reindex())
        rebuilt = await _indexes(world)
        assert rebuilt.keys() == before.keys()
        assert rebuilt != before
        assert ids[4] == await world.nearest(FACTS[4])

        async def at_the_switch() -> bool:
            return SECOND == (await world.client.spaces.get()).embedding.model

        moving = asyncio.create_task(world.reindex(SECOND))
        await eventually(at_the_switch)
        assert "embeddings_near_1_2" in await _indexes(world)
        check_progress(await moving)

        async def only_the_new_one() -> bool:
            return ["embeddings_near_1_2"] == list(await _indexes(world))

        await eventually(only_the_new_one)
        assert ids[4] == await world.nearest(FACTS[4])


async def test_a_small_space_gets_no_index(open_world: OpenWorld) -> None:
    async with open_world() as world:
        await world.store(*FACTS)
        check_progress(await world.reindex())
        check_progress(await world.reindex(SECOND))
        assert {} == await _indexes(world)
        assert 0 == await world.connection.fetchval("select count(*) from vector_indexes")


async def _points(double: QdrantDouble, collection: str) -> set[str]:
    records, _ = await double.local.scroll(collection, limit=1000, with_payload=False)
    return {str(record.id) for record in records}


async def _collections(double: QdrantDouble) -> set[str]:
    return {collection.name for collection in (await double.local.get_collections()).collections}


async def _memories(world: World) -> set[str]:
    return {str(row["uid"]) for row in await world.connection.fetch("select uid from memories")}


async def test_points_move_to_a_collection_of_their_own_and_the_old_one_is_dropped(
    open_world: OpenWorld, double: QdrantDouble
) -> None:
    async with open_world(qdrant_url=double.url) as world:
        await world.store(*FACTS)
        await world.reindex(SECOND)
        assert {"lorebank-2-80"} == await _collections(double)
        assert await _memories(world) == await _points(double, "lorebank-2-80")
        await world.reindex(FIRST)
        assert {"lorebank-1-48"} == await _collections(double)
        assert await _memories(world) == await _points(double, "lorebank-1-48")


async def test_a_collection_that_another_space_needs_stays(open_world: OpenWorld, double: QdrantDouble) -> None:
    async with open_world(qdrant_url=double.url) as world:
        await world.store(*FACTS)
        await world.client.spaces.create("annexe")
        check_progress([step async for step in world.client.spaces.reindex("annexe", model=SECOND)])
        assert {"lorebank-1-48", "lorebank-2-80"} == await _collections(double)
        assert await _memories(world) == await _points(double, "lorebank-1-48")


async def test_all_points_are_written_again_and_those_of_nothing_removed(
    open_world: OpenWorld, double: QdrantDouble
) -> None:
    async with open_world(qdrant_url=double.url) as world:
        ids = await world.store(*FACTS)

        async def all_there() -> bool:
            return await _memories(world) == await _points(double, "lorebank-1-48")

        await eventually(all_there)
        await _damage(double.local)
        assert await _memories(world) != await _points(double, "lorebank-1-48")
        check_progress(await world.reindex())
        assert await _memories(world) == await _points(double, "lorebank-1-48")
        for memory, fact in zip(ids, FACTS, strict=True):
            assert memory == await world.nearest(fact)


async def _damage(local: AsyncQdrantClient) -> None:
    """Lose some points, leave one of a memory that is gone, and turn the vectors of the others around."""
    records, _ = await local.scroll("lorebank-1-48", limit=1000, with_vectors=True)
    lost, stray, *others = sorted(records, key=lambda record: str(record.id))
    await local.delete("lorebank-1-48", points_selector=models.PointIdsList(points=[lost.id]))
    points = [models.PointStruct(id=other.id, vector=lost.vector, payload=other.payload) for other in others]
    gone = "01890a5d-0000-7000-8000-000000000000"
    points.append(models.PointStruct(id=gone, vector=stray.vector, payload=stray.payload))
    await local.upsert("lorebank-1-48", points=points)


async def test_a_store_that_takes_nothing_in_ends_the_call(
    open_world: OpenWorld, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_rebuild, "STALLED_S", 0.2)
    async with open_world(qdrant_url=double.url, qdrant_write_timeout_s=0.5) as world:
        await world.store(*FACTS)
        double.hang("Upsert")
        with pytest.raises(Unavailable, match="call again"):
            await world.reindex(SECOND)
        assert FIRST == (await world.client.spaces.get()).embedding.model
        double.heal()
        monkeypatch.setattr(outbox_rebuild, "STALLED_S", 30.0)
        check_progress(await world.reindex(SECOND))
