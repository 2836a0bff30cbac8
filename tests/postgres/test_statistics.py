"""Document frequencies from snapshots: as good as counting, and rebuilt when a tenth has changed."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest

from lorebank import AsyncClient, Memory
from lorebank_server.postgres import statistics
from lorebank_server.postgres.statistics import StatisticsRefresher

THINGS = ("boiler", "lift", "alarm", "gate")
PLACES = ("mill", "school", "harbour", "tower", "inn")
FACTS = [f"The {thing} of the {place} is checked." for thing in THINGS for place in PLACES]
COPIES = 120
STORED = len(FACTS) * (COPIES + 1)
LEAST_MEMORIES = 100
"""From so many on a bucket has a snapshot."""


@dataclass
class Large:
    """A space that is large enough for snapshots, and who looks at it."""

    client: AsyncClient
    owner: asyncpg.Connection

    async def refresh(self) -> int:
        return await StatisticsRefresher.refresh(self.owner)

    async def scores(self) -> list[tuple[str, float, float]]:
        answer = await self.client.find("who checks the boiler of the harbour", limit=100, skip_usage=True)
        return [(hit.memory.id, hit.score, hit.parts.lexical) for hit in answer.hits]

    async def snapshot(self) -> tuple[int, int] | None:
        row = await self.owner.fetchrow("select version, documents from bucket_statistics")
        return tuple(row) if row else None


@pytest.fixture
async def large(database, server_factory, clock, copy_memories, connect, monkeypatch) -> AsyncIterator[Large]:
    # The server looks once, while there is nothing to see; from then on the test does.
    monkeypatch.setattr(statistics, "REFRESH_INTERVAL_S", 3600.0)
    async with server_factory(dsn=database, clock=clock) as live, AsyncClient(live.address) as client:
        async for item in client.store_many([Memory(content=fact) for fact in FACTS]):
            assert item.HasField("response")
        await copy_memories(database, COPIES)
        yield Large(client, await connect(database))


async def test_scores_are_the_same_counted_and_from_a_snapshot(large: Large):
    counted = await large.scores()
    assert None is await large.snapshot()
    assert 1 == await large.refresh()
    assert (1, STORED) == await large.snapshot()
    assert counted == await large.scores()
    assert 0 == await large.refresh()
    assert counted == await large.scores()
    assert counted[0][2] > 0


async def test_a_tenth_is_what_it_takes_to_rebuild(large: Large):
    await large.refresh()
    await retire(large, STORED // 10)
    assert 0 == await large.refresh()
    await retire(large, 1)
    assert 1 == await large.refresh()
    assert (2, STORED - STORED // 10 - 1) == await large.snapshot()


async def test_a_snapshot_knows_every_term_of_its_bucket(large: Large):
    await large.refresh()
    terms = {row["term"]: row["documents"] for row in await large.owner.fetch("select * from bucket_terms")}
    assert (STORED // 4, STORED // 5, STORED) == (terms["boiler"], terms["harbour"], terms["check"])


async def test_a_space_that_shrinks_keeps_a_true_snapshot(large: Large):
    await large.refresh()
    await retire(large, STORED - 50)
    assert 1 == await large.refresh()
    assert (2, 50) == await large.snapshot()
    await retire(large, 50)
    assert 1 == await large.refresh()
    assert (3, 0) == await large.snapshot()
    assert 0 == await large.refresh()


async def test_small_buckets_have_no_snapshot(large: Large):
    await retire(large, STORED - LEAST_MEMORIES + 1)
    assert 0 == await large.refresh()
    assert None is await large.snapshot()


async def test_who_does_not_get_the_lock_leaves_the_rebuilding_to_who_has_it(large: Large, database, connect):
    other = await connect(database)
    async with other.transaction():
        await other.execute("select pg_advisory_xact_lock(hashtextextended('statistics:' || id, 0)) from buckets")
        assert 0 == await large.refresh()
    assert 1 == await large.refresh()


async def retire(large: Large, count: int) -> None:
    await large.owner.execute(
        "update memories set state = 6 where uid in (select uid from memories where state = 2 order by uid limit $1)",
        count,
    )


async def test_after_a_bulk_load_the_planner_knows_how_much_there_is(large: Large):
    assert await StatisticsRefresher.analyze(large.owner)
    assert STORED == await large.owner.fetchval("select reltuples::int from pg_class where relname = 'memories'")
    assert not await StatisticsRefresher.analyze(large.owner)


async def test_who_sees_little_is_counted_for_as_things_stand(large: Large):
    async def documents() -> int:
        return await large.owner.fetchval(
            "select s.documents from term_statistics(1, array(select id from buckets), array['boiler']) s"
        )

    await large.refresh()
    await retire(large, 100)
    assert STORED == await documents()
    await retire(large, STORED - 1_600)
    await large.refresh()
    await retire(large, 100)
    assert (1_400, 1_500) == (await documents(), (await large.snapshot())[1])
