"""Approximate indexes of large spaces: built behind the service's back, and as good as reading everything."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
import numpy as np
import pytest
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from lorebank import AsyncClient, Memory
from lorebank_server.domain.memory import Kind
from lorebank_server.domain.selector import Selector
from lorebank_server.ports.storage import RecallPlan
from lorebank_server.postgres import vector_indexer
from lorebank_server.postgres.vector_indexer import VectorIndexer

FACTS = [
    f"The {thing} of the {place} {what}."
    for thing in ("boiler", "lift", "menu", "garden")
    for place in ("mill", "inn", "pier", "school", "museum")
    for what in ("is checked in spring", "costs too much", "was praised by the guests")
]
COPIES = 90
STORED = len(FACTS) * (COPIES + 1)
NOW = datetime(2026, 1, 15, 13, tzinfo=UTC)


@dataclass
class Large:
    """A space that is large enough for an index, and who looks at it."""

    client: AsyncClient
    owner: asyncpg.Connection
    index: object
    plan: RecallPlan

    async def bring_up_to_date(self) -> int:
        return await VectorIndexer.bring_up_to_date(self.owner)

    async def indexes(self) -> list[str]:
        rows = await self.owner.fetch(
            "select indexrelid::regclass::text as name from pg_index where indisvalid and "
            "indrelid = 'embeddings'::regclass and indexrelid::regclass::text like 'embeddings_near%'"
        )
        return [row["name"] for row in rows]

    async def waiting(self) -> int:
        return await self.owner.fetchval("select count(*) from embeddings where not indexed")

    async def nearest(self, vector, selector=Selector(), limit=10) -> list:
        found = await self.index.search(self.plan, vector, selector, now=NOW, limit=100)
        return list(found.similarities.items())[:limit]

    async def exactly(self, vector) -> list:
        rows = await self.owner.fetch(
            "select memory, 1 - (embedding <=> $1) as similarity from embeddings order by embedding <=> $1, memory "
            "limit 10",
            HalfVector(vector),
        )
        return [tuple(row) for row in rows]


@pytest.fixture
async def large(database, server_factory, clock, copy_memories, connect, monkeypatch) -> AsyncIterator[Large]:
    # The server looks once, while there is nothing to see; from then on the test does.
    monkeypatch.setattr(vector_indexer, "INTERVAL_S", 3600.0)
    async with server_factory(dsn=database, clock=clock) as live, AsyncClient(live.address) as client:
        async for item in client.store_many([Memory(content=fact) for fact in FACTS]):
            assert item.HasField("response")
        await copy_memories(database, COPIES)
        owner = await connect(database)
        await register_vector(owner)
        chance = np.random.default_rng(7)
        rows = await owner.fetch("select memory, embedding from embeddings order by memory")
        # Mixtures of real vectors, because a cloud of independent numbers is nothing like a language.
        known = np.array([row["embedding"].to_numpy() for row in rows])
        moved = np.einsum("nk,nkd->nd", chance.random((STORED, 3)), known[chance.integers(STORED, size=(STORED, 3))])
        await owner.execute(
            "update embeddings e set embedding = v.embedding "
            "from unnest($1::uuid[], $2::halfvec[]) v(memory, embedding) where e.memory = v.memory",
            [row["memory"] for row in rows],
            [HalfVector(vector / np.linalg.norm(vector)) for vector in moved],
        )
        where = await owner.fetchrow(
            "select space_id, model, array_agg(distinct bucket_id) as buckets from embeddings group by 1, 2"
        )
        plan = RecallPlan(
            space_id=where["space_id"],
            generation=where["model"],
            buckets=tuple(where["buckets"]),
            terms=(),
            frequencies=(),
            documents=STORED,
            total_length=STORED,
        )
        yield Large(client, owner, live.running.services.vectors, plan)


@pytest.fixture
async def queries(embedder) -> list:
    things = ("who looks after the heating", "elevator of the hotel", "jetty", "water mill", "safety", "guest house")
    return [await embedder.embed_query(thing) for thing in things]


async def test_a_large_space_gets_an_index_that_finds_what_an_exact_search_finds(large: Large, queries):
    expected = [await large.exactly(vector) for vector in queries]
    assert expected == [await large.nearest(vector) for vector in queries]
    assert 1 == await large.bring_up_to_date()
    assert ["embeddings_near_1_1"] == await large.indexes()
    assert 0 == await large.bring_up_to_date()

    found = [await large.nearest(vector) for vector in queries]
    same = sum(len({*exact} & {*near}) for exact, near in zip(expected, found, strict=True))
    assert same >= 0.98 * 10 * len(queries)
    async with asyncio.timeout(20):  # sessions report what they scanned every second or so
        while not await large.owner.fetchval(
            "select idx_scan from pg_stat_user_indexes where indexrelname = 'embeddings_near_1_1'"
        ):
            await large.nearest(queries[0])
            await asyncio.sleep(0.1)

    by_kind = Selector(kinds=(Kind.SEMANTIC,))
    assert found == [await large.nearest(query, by_kind) for query in queries]
    assert [] == await large.nearest(queries[0], Selector(kinds=(Kind.EPISODIC,)))


async def test_what_is_stored_later_waits_outside_is_found_at_once_and_taken_in(
    large: Large, embedder, monkeypatch: pytest.MonkeyPatch
):
    await large.bring_up_to_date()
    fact = "Penguins waddle along the frozen quay."
    stored = (await large.client.store(fact)).memory
    assert 1 == await large.waiting()

    async def closest() -> str:
        ((uid, similarity),) = await large.nearest(await embedder.embed_query("penguin on ice"), limit=1)
        assert 0.3 < similarity < 1
        return str(uid)

    assert stored.uid == await closest()
    changed = await large.client.update(Memory(id=stored.id, content=f"{fact} They sing."), mask=["content"])
    assert (1, stored.uid) == (await large.waiting(), await closest())
    assert changed.memory.revision == 2

    monkeypatch.setattr(vector_indexer, "MOST_WAITING", 0)
    assert 1 == await large.bring_up_to_date()
    assert (0, stored.uid) == (await large.waiting(), await closest())
    await large.client.delete(stored.id)
    assert stored.uid != str((await large.nearest(await embedder.embed_query("penguin on ice"), limit=1))[0][0])


async def test_a_build_that_broke_off_is_begun_again_and_indexes_of_nothing_go(large: Large, queries):
    await large.owner.execute("insert into vector_indexes values (1, 1, 0, false, now())")
    exact = await large.exactly(queries[0])
    assert exact == await large.nearest(queries[0])
    assert 1 == await large.bring_up_to_date()
    assert [True] == [row["ready"] for row in await large.owner.fetch("select ready from vector_indexes")]

    await large.owner.execute("delete from vector_indexes")
    assert exact == await large.nearest(queries[0])
    await large.owner.execute("delete from spaces")
    assert 1 == await large.bring_up_to_date()
    assert [] == await large.indexes()


async def test_who_sees_little_of_a_large_space_is_answered_exactly(large: Large, queries):
    await large.bring_up_to_date()
    exact = await large.exactly(queries[0])
    large.plan = RecallPlan(
        space_id=1, generation=1, buckets=large.plan.buckets, terms=(), frequencies=(), documents=1, total_length=1
    )
    await large.owner.execute("update vector_indexes set documents = 0")
    await large.owner.execute("drop index embeddings_near_1_1")
    assert exact == await large.nearest(queries[0])
