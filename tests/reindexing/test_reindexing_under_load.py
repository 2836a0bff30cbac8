"""Reindexing while others write and search without pause: nobody notices, and nothing is left behind."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable

import pytest
from reindexing_world import FACTS, FIRST, SECOND, World, check_progress, eventually

from lorebank.v1.memory_pb2 import Memory
from lorebank_server.operations import reindex

LANDMARK = "Zephyr obelisk quartz bassoon."

_COPY_ONE = """
with copied as (
    insert into memories
    select (jsonb_populate_record(m, jsonb_build_object('uid', gen_random_uuid(), 'id', 'latecomer'))).*
    from memories m
    limit 1
    returning uid
)
insert into embeddings
select (jsonb_populate_record(e, jsonb_build_object('memory', c.uid))).*
from copied c cross join embeddings e
where e.model = 1
limit 1
"""
_WAITS = """
select exists (
    select from pg_locks l join pg_database d on d.oid = l.database
    where d.datname = current_database() and l.locktype = 'advisory' and l.mode = 'ExclusiveLock' and not l.granted
)
"""


class Load:
    """Everybody else on the server."""

    def __init__(self, world: World, landmark: str) -> None:
        self.world = world
        self.landmark = landmark
        self.stored: dict[str, str] = {}
        self.finds = 0
        self.writes = 0
        self._stop = False
        # Either model has its own; of two that are mixed, there would be another or none.
        (text,) = {text for text in world.first.embedded if LANDMARK in text}
        self._cosines = [float(model.vector(LANDMARK) @ model.vector(text)) for model in (world.first, world.second)]
        self._chance = random.Random(11)
        self._numbers = itertools.count(1)

    async def during(self, work: Callable[[], Awaitable[object]]) -> None:
        """Keep on until the work is done, and a little longer."""
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(self._write())
            for mode in ("semantic", "hybrid"):
                group.create_task(self._find(mode))
            await self._some(10)
            await work()
            await self._some(10)
            self._stop = True

    async def _some(self, more: int) -> None:
        finds, writes = self.finds + more, self.writes + more
        await eventually(lambda: self.finds >= finds and self.writes >= writes)

    async def _find(self, mode: str) -> None:
        while not self._stop:
            answer = await self.world.client.find(LANDMARK, mode=mode, limit=3)
            assert [] == list(answer.degraded)
            assert self.landmark == answer.hits[0].memory.id
            assert any(answer.hits[0].parts.similarity == pytest.approx(cosine, abs=2e-3) for cosine in self._cosines)
            self.finds += 1

    async def _write(self) -> None:
        while not self._stop:
            number = next(self._numbers)
            content = f"Fact{number} is about topic{number} and number{number}."
            memory = self._chance.choice([*self.stored, ""])
            if not memory or self._chance.random() < 0.5:
                memory = (await self.world.client.store(content)).memory.id
            elif self._chance.random() < 0.7:
                del self.stored[memory]  # so that no other writer takes it meanwhile
                await self.world.client.update(memory, content=content)
            else:
                del self.stored[memory]
                memory = (await self.world.client.supersede([memory], content)).memory.id
            self.stored[memory] = content
            self.writes += 1


async def test_nobody_notices_and_nothing_is_left_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindex, "PAGE", 16)
    (landmark, *_) = await world.store(LANDMARK, *FACTS, *(f"Old fact{n} of the {n}th shelf." for n in range(150)))
    load = Load(world, landmark)

    await load.during(lambda: world.reindex(SECOND))

    check_progress(world.told)
    memories = await world.connection.fetchval("select count(*) from memories")
    assert {(SECOND, 80): memories} == await world.vectors()
    assert 0 == await world.bare()

    async def nothing_waits() -> bool:
        return not await world.connection.fetchval("select count(*) from unembedded")

    await eventually(nothing_waits)
    for memory, content in load.stored.items():
        assert memory == await world.nearest(content)

    await Load(world, landmark).during(lambda: world.reindex(FIRST))
    memories = await world.connection.fetchval("select count(*) from memories")
    assert {(FIRST, 48): memories} == await world.vectors()


async def test_a_vector_made_before_the_switch_is_made_again_after_it(world: World) -> None:
    (first, second) = await world.store(*FACTS[:2])
    world.first.gate.clear()
    writes = [
        asyncio.create_task(world.client.store("The observatory is open at night.")),
        asyncio.create_task(world.client.update(first, content="The mill burnt down.")),
        asyncio.create_task(world.client.supersede([second], "The pier was sold.")),
        asyncio.create_task(world.store(*(f"The observatory has telescope{n}." for n in range(5)))),
    ]
    await world.reindex(SECOND)
    assert not any(write.done() for write in writes)
    world.first.gate.set()
    stored, _, superseded, batch = await asyncio.gather(*writes)

    assert {(SECOND, 80): 9} == await world.vectors()
    assert 0 == await world.connection.fetchval("select count(*) from unembedded")
    assert stored.memory.id == await world.nearest("The observatory is open at night.")
    assert first == await world.nearest("The mill burnt down.")
    assert superseded.memory.id == await world.nearest("The pier was sold.")
    assert batch[3] == await world.nearest("telescope3")


async def test_a_write_under_way_is_waited_for_and_not_forgotten(world: World) -> None:
    await world.store(*FACTS[:3])
    writer = world.connection
    async with writer.transaction():
        await writer.execute("select keep_generation(1, (select embedding_model from spaces where number = 1))")
        switching = asyncio.create_task(world.reindex(SECOND))
        await eventually(lambda: world.look(_WAITS))
        stored = asyncio.create_task(world.client.store("The bell rings at noon."))
        await writer.execute(_COPY_ONE)
        assert not switching.done()
    check_progress(await switching)
    await stored
    assert {(SECOND, 80): 5} == await world.vectors()
    assert 0 == await world.bare()


async def test_a_memory_that_the_new_model_refuses_waits_in_the_background(world: World) -> None:
    ids = await world.store(*FACTS, "This one is full of gibberish.")
    world.second.refused = "gibberish"
    check_progress(await world.reindex(SECOND))
    assert {(SECOND, 80): len(FACTS)} == await world.vectors()
    assert 1 == await world.bare()
    found = await world.client.find("gibberish")
    assert ids[-1] == found.hits[0].memory.id
    await world.client.update(Memory(id=ids[-1], content="This one is fine now."), mask=["content"])
    assert ids[-1] == await world.nearest("This one is fine now.")
