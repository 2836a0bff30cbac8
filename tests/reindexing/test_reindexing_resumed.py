"""A reindexing that is broken off, wherever it was, does no harm, and the next one goes on from there."""

import asyncio

import asyncpg
import pytest
from reindexing_world import FACTS, FIRST, SECOND, OpenWorld, World, check_progress, eventually

from bench.qdrant_double import QdrantDouble
from lorebank import Unavailable
from lorebank_server.operations import reindex
from lorebank_server.postgres import vector_indexer


async def _break_off(task: "asyncio.Task[object]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_broken_off_while_embedding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindex, "PAGE", 4)
    ids = await world.store(*FACTS)
    world.second.most = 8
    broken = asyncio.create_task(world.reindex(SECOND))
    await world.until("embedding", 8)
    await _break_off(broken)
    assert {(FIRST, 48): len(FACTS), (SECOND, 80): 8} == await world.vectors()
    assert ids[2] == await world.nearest(FACTS[2])
    assert FIRST == (await world.client.spaces.get()).embedding.model

    # Meanwhile the words of one that was done have changed.
    await world.client.update(ids[0], content="The mill was moved to the museum.")
    world.second.most = 1000
    world.second.gate.set()
    check_progress(await world.reindex_again(SECOND))
    assert (7, len(FACTS)) == (world.told[0].done, world.told[0].total)
    assert {(SECOND, 80): len(FACTS)} == await world.vectors()
    assert len(FACTS) + 1 == len(world.second.embedded)
    assert ids[0] == await world.nearest("mill moved to the museum")


async def test_a_model_that_goes_away_ends_the_call_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reindex, "PAGE", 4)
    monkeypatch.setattr(reindex, "PATIENCE_S", 0.1)
    ids = await world.store(*FACTS)
    world.second.most = 8
    broken = asyncio.create_task(world.reindex(SECOND))
    await world.until("embedding", 8)
    world.second.away, world.second.most = True, 1000
    world.second.gate.set()
    with pytest.raises(Unavailable):
        await broken
    assert ids[2] == await world.nearest(FACTS[2])
    world.second.away = False
    check_progress(await world.reindex(SECOND))
    assert len(FACTS) == len(world.second.embedded)


async def test_a_model_that_takes_nothing_at_all_is_not_moved_to(world: World) -> None:
    await world.store(*FACTS)
    world.second.refused = " "
    with pytest.raises(Unavailable):
        await world.reindex(SECOND)
    assert {(FIRST, 48): len(FACTS)} == await world.vectors()
    assert FIRST == (await world.client.spaces.get()).embedding.model


async def test_broken_off_before_the_switch(world: World) -> None:
    ids = await world.store(*FACTS)
    async with world.connection.transaction():
        await world.connection.execute("select pg_advisory_xact_lock_shared(hashtextextended('generation:1', 0))")
        broken = asyncio.create_task(world.reindex(SECOND))
        await world.until("switching")
        await _break_off(broken)
    assert FIRST == (await world.client.spaces.get()).embedding.model
    assert ids[2] == await world.nearest(FACTS[2])
    await world.store("The ferry leaves every hour.")
    check_progress(await world.reindex_again(SECOND))
    assert {(SECOND, 80): len(FACTS) + 1} == await world.vectors()


async def test_broken_off_behind_the_switch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await world.store(*FACTS)
    monkeypatch.setattr(reindex, "LONGEST_FIND_S", 3600.0)
    broken = asyncio.create_task(world.reindex(SECOND))

    async def switched() -> bool:
        return SECOND == (await world.client.spaces.get()).embedding.model

    await eventually(switched)
    assert {(FIRST, 48): len(FACTS), (SECOND, 80): len(FACTS)} == await world.vectors()
    assert ids[2] == await world.nearest(FACTS[2])
    await _break_off(broken)
    assert ids[2] == await world.nearest(FACTS[2])
    monkeypatch.setattr(reindex, "LONGEST_FIND_S", 0.0)
    check_progress(await world.reindex_again(SECOND))
    assert {(SECOND, 80): len(FACTS)} == await world.vectors()
    assert len(FACTS) == len(world.second.embedded)


async def test_given_up_for_the_former_model(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindex, "PAGE", 4)
    await world.store(*FACTS)
    world.second.most = 8
    broken = asyncio.create_task(world.reindex(SECOND))
    await world.until("embedding", 8)
    await _break_off(broken)
    check_progress(await world.reindex_again())
    assert {(FIRST, 48): len(FACTS)} == await world.vectors()


async def test_broken_off_while_an_index_is_built(
    open_world: OpenWorld, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_indexer, "BUILD_FROM", 5)
    monkeypatch.setattr(vector_indexer, "INTERVAL_S", 0.02)
    holder = await asyncpg.connect(database)
    await holder.execute("select pg_advisory_lock(hashtextextended('vector_indexes', 0))")
    async with open_world(dsn=database) as world:
        ids = await world.store(*FACTS)
        broken = asyncio.create_task(world.reindex(SECOND))
        await world.until("indexing")
        await _break_off(broken)
        assert ids[2] == await world.nearest(FACTS[2])
        going_on = asyncio.create_task(world.reindex_again(SECOND))
        await eventually(lambda: world.told and world.told[-1].phase == "indexing")
        assert not going_on.done()
        await holder.close()
        check_progress(await going_on)
        assert ids[2] == await world.nearest(FACTS[2])
        assert {(SECOND, 80): len(FACTS)} == await world.vectors()


async def test_broken_off_while_the_store_is_away(open_world: OpenWorld, double: QdrantDouble) -> None:
    async with open_world(qdrant_url=double.url) as world:
        ids = await world.store(*FACTS)
        await eventually(lambda: _drained(world))
        double.hang("Upsert")
        broken = asyncio.create_task(world.reindex(SECOND))
        await world.until("indexing")
        await _break_off(broken)
        assert ids[2] == await world.nearest(FACTS[2])
        double.heal()
        check_progress(await world.reindex_again(SECOND))
        assert {(SECOND, 80): len(FACTS)} == await world.vectors()
        assert ids[2] == await world.nearest(FACTS[2])


async def _drained(world: World) -> bool:
    return not await world.connection.fetchval("select count(*) from outbox")
