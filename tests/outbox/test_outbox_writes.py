"""Whatever changes a vector, or what is filtered by, leaves a row in the same transaction."""

import random
from collections.abc import Awaitable, Callable

import pytest
from outbox_world import World

from lorebank import Memory, StoreRequest
from lorebank_server.domain.principal import Role
from lorebank_server.rpc.knowledge_servicer import KnowledgeServicer
from lorebank_server.rpc.memory_servicer import MemoryServicer
from lorebank_server.rpc.permissions import REQUIRED_ROLES
from lorebank_server.rpc.space_servicer import SpaceServicer


async def _memory(world: World) -> str:
    return (await world.client.store(f"The cache of service {random.random()} is warmed at six.")).memory.id


async def _store(world: World) -> list[str]:
    return [await _memory(world)]


async def _store_many(world: World) -> list[str]:
    requests = [StoreRequest(memory=Memory(content=text)) for text in ("Logs are kept.", "Alerts go to the engineer.")]
    return [item.response.memory.id async for item in world.client.store_many(requests)]


async def _update(world: World) -> list[str]:
    memory = await _memory(world)
    await _forget_rows(world)
    await world.client.update(memory, content="The cache is warmed at five.")
    return [memory]


async def _update_tags(world: World) -> list[str]:
    memory = await _memory(world)
    await _forget_rows(world)
    await world.client.update(memory, tags=["cache"])
    return [memory]


async def _delete(world: World) -> list[str]:
    memory = await _memory(world)
    await _forget_rows(world)
    await world.client.delete(memory)
    return [memory]


async def _undelete(world: World) -> list[str]:
    memory = await _memory(world)
    await world.client.delete(memory)
    await _forget_rows(world)
    await world.client.undelete(memory)
    return [memory]


async def _supersede(world: World) -> list[str]:
    memory = await _memory(world)
    await _forget_rows(world)
    answer = await world.client.supersede([memory], "The cache is not warmed any more.")
    return [memory, answer.memory.id]


async def _vote(world: World) -> list[str]:
    memory = await _memory(world)
    await _forget_rows(world)
    await world.client.downvote(memory)
    return [memory]


async def _delete_space(world: World) -> list[str]:
    memories = [await _memory(world) for _ in range(3)]
    await world.connection.execute(
        "with other as (insert into spaces (id, default_confidence, stale_threshold, quality_policy, language, "
        "create_time, embedding_model) select 'other', default_confidence, stale_threshold, quality_policy, language, "
        "now(), embedding_model from spaces returning number) update memories set space_id = other.number from other"
    )
    await world.connection.execute("update embeddings e set space_id = m.space_id from memories m where m.uid = memory")
    await _forget_rows(world)
    uids = {await world.uid(memory) for memory in memories}
    digest = (await world.client.spaces.delete("other")).digest
    await world.client.spaces.delete("other", confirm=digest)
    rows = await world.rows()
    assert uids == {row["memory"] for row in rows}
    assert len(uids) == len(rows)
    return []


async def _forget_rows(world: World) -> None:
    await world.connection.execute("delete from outbox")


_WRITES: dict[str, list[Callable[[World], Awaitable[list[str]]]]] = {
    "Store": [_store],
    "BatchStore": [_store_many],
    "UpdateMemory": [_update, _update_tags],
    "DeleteMemory": [_delete],
    "UndeleteMemory": [_undelete],
    "Supersede": [_supersede],
    "Vote": [_vote],
    "DeleteSpace": [_delete_space],
}

_CHANGE_NO_MEMORY = {"CreateSpace", "UpdateSpace", "CreateKey", "ListKeys", "RevokeKey", "CheckIntegrity", "Reindex"}


@pytest.mark.parametrize("write", [write for writes in _WRITES.values() for write in writes], ids=lambda w: w.__name__)
async def test_every_write_enqueues_the_memories_that_it_changes(world: World, write) -> None:
    for memory in await write(world):
        assert [row["space_id"] for row in await world.rows(memory)]


def test_no_procedure_that_writes_is_left_out() -> None:
    served = {name for servicer in (MemoryServicer, KnowledgeServicer, SpaceServicer) for name in vars(servicer)}
    writing = {method.rpartition("/")[2] for method, role in REQUIRED_ROLES.items() if role > Role.READER}

    assert (writing & served) - _CHANGE_NO_MEMORY == _WRITES.keys()


async def test_a_transaction_that_fails_enqueues_nothing(world: World) -> None:
    memory = await _memory(world)
    await _forget_rows(world)

    transaction = world.connection.transaction()
    await transaction.start()
    await world.connection.execute("update embeddings set found_until = now()")
    assert await world.rows(memory)
    await transaction.rollback()

    assert [] == await world.rows()


async def test_a_random_history_ends_with_the_store_holding_what_postgres_does(world: World) -> None:
    chance = random.Random(7)
    draining = await world.drain()
    memories = [await _memory(world) for _ in range(8)]
    for _ in range(60):
        memory = chance.choice(memories)
        step = chance.choice(["store", "words", "tags", "delete", "undelete", "supersede", "vote"])
        state = (await world.client.get(memory)).state
        if step == "store":
            memories.append(await _memory(world))
        elif step == "words" and state == 2:
            await world.client.update(memory, content=f"Fact {chance.random()}.")
        elif step == "tags" and state == 2:
            await world.client.update(memory, tags=[f"t{chance.randrange(5)}"])
        elif step == "delete":
            await world.client.delete(memory)
        elif step == "undelete" and state == 5:
            await world.client.undelete(memory)
        elif step == "supersede" and state == 2:
            memories.append((await world.client.supersede([memory], f"News {chance.random()}.")).memory.id)
        elif step == "vote" and state == 2:
            await world.client.downvote(memory, run=str(chance.random()))
    await world.settled()

    (points,) = world.store.disk.points.values()
    rows = await world.connection.fetch("select uid, state, tags, stale_time from memories")
    assert {row["uid"]: (row["state"], tuple(row["tags"])) for row in rows} == {
        uid: (point.state, point.tags) for uid, point in points.items()
    }
    assert draining.drainer.available
