"""Applying the outbox: whoever does it, however it fails, the store ends with the present state."""

import asyncio
from time import monotonic
from uuid import UUID

import pytest
from outbox_world import World, eventually
from stored_points import StoreDouble

from lorebank_server.domain.errors import VectorIndexUnavailableError
from lorebank_server.operations import draining
from lorebank_server.ports.outbox import Work

pytestmark = pytest.mark.usefixtures("world")


async def _memory(world: World, content: str = "The cache is warmed at six.") -> str:
    return (await world.client.store(content)).memory.id


async def _begun(store: StoreDouble, count: int = 1) -> None:
    async def begun() -> bool:
        return store.begun >= count

    await eventually(begun)


def _tags(world: World, uid: UUID) -> tuple[str, ...] | None:
    found = [points[uid].tags for points in world.store.disk.points.values() if uid in points]
    return found[0] if found else None


async def test_of_two_drainers_the_slow_one_never_puts_an_older_state_last(world: World) -> None:
    slow = StoreDouble(world.store.disk)
    slow.gate.clear()
    await world.drain(slow)
    memory = await _memory(world)
    uid = await world.uid(memory)
    await _begun(slow)

    # The slow one holds the first state; the quick one sees the second, and others.
    await world.client.update(memory, tags=["new"])
    quick = await world.drain()
    other = await _memory(world, "Logs are kept for ninety days.")
    other_uid = await world.uid(other)

    async def other_applied() -> bool:
        return _tags(world, other_uid) is not None

    await eventually(other_applied)
    assert _tags(world, uid) is None
    slow.gate.set()
    await world.settled()

    assert ("new",) == _tags(world, uid)
    assert quick.drainer.available


async def test_a_writer_waits_for_its_budget_and_no_longer_while_the_store_hangs(open_world) -> None:
    async with open_world(outside=True) as world:
        world.store.gate.clear()
        await _memory(world, "The first write finds nothing wrong.")
        await _begun(world.store)
        vectors = world.running.services.vectors

        begin = monotonic()
        await vectors.settle()
        first = monotonic() - begin

        async def skips() -> bool:
            begin = monotonic()
            await vectors.settle()
            return monotonic() - begin < draining.SETTLE_BUDGET_S / 2

        await eventually(skips)
        assert first < draining.SETTLE_BUDGET_S * 10
        assert await world.waits()
        world.store.gate.set()
        await world.settled()


async def test_a_drainer_that_dies_within_a_write_leaves_the_memory_to_be_applied_twice(world: World) -> None:
    dying = StoreDouble(world.store.disk)
    dying.gate.clear()
    first = await world.drain(dying, uncertain_for_s=2.0)
    memory = await _memory(world)
    uid = await world.uid(memory)
    await _begun(dying)
    await first.stop()

    # Its write is still on its way to the store when the next one has applied a later state.
    await world.client.update(memory, tags=["new"])
    await world.drain(uncertain_for_s=2.0)

    async def applied() -> bool:
        return _tags(world, uid) == ("new",)

    await eventually(applied)
    assert await world.rows(memory)
    stale = {uid: _state_before(world, uid)}
    for points in world.store.disk.points.values():
        points.update(stale)
    await world.settled()

    assert ("new",) == _tags(world, uid)


async def test_a_write_that_lands_after_it_was_given_up_is_put_right(world: World) -> None:
    await world.drain(uncertain_for_s=2.0)
    memory = await _memory(world)
    uid = await world.uid(memory)
    await world.settled()

    world.store.loses_answers = True
    await world.client.update(memory, tags=["old"])
    await _begun(world.store, 2)

    async def given_up() -> bool:
        return bool(world.store.under_way)

    await eventually(given_up)
    world.store.loses_answers = False
    await world.client.update(memory, tags=["new"])

    async def applied() -> bool:
        return _tags(world, uid) == ("new",)

    await eventually(applied)
    world.store.land()
    assert ("old",) == _tags(world, uid)
    await world.settled()

    assert ("new",) == _tags(world, uid)


async def test_a_write_that_lands_after_the_memory_is_gone_is_put_right(world: World) -> None:
    await world.drain(uncertain_for_s=2.0)
    world.store.loses_answers = True
    memory = await _memory(world)
    uid = await world.uid(memory)

    async def given_up() -> bool:
        return bool(world.store.under_way)

    await eventually(given_up)
    world.store.loses_answers = False
    await world.connection.execute("delete from memories where uid = $1", uid)

    async def deleted() -> bool:
        return world.store.calls["delete"] > 0

    await eventually(deleted)
    world.store.land()
    assert uid in world.store.disk.versions
    await world.settled()

    assert uid not in world.store.disk.versions


async def test_an_outage_is_waited_out_and_nothing_is_lost(world: World) -> None:
    draining_ = await world.drain(uncertain_for_s=1.0)
    world.store.down = True
    memories = [await _memory(world, f"Fact number {number}.") for number in range(5)]

    async def noticed() -> bool:
        return not draining_.drainer.available

    await eventually(noticed)
    begin = monotonic()
    await draining_.drainer.settle()
    assert monotonic() - begin < draining.SETTLE_BUDGET_S / 2
    await world.client.delete(memories[0])
    world.store.down = False
    await world.settled()

    assert draining_.drainer.available


async def test_a_memory_that_the_store_refuses_holds_up_nobody_else(world: World) -> None:
    memories = [await _memory(world, f"Fact number {number}.") for number in range(6)]
    uids = [await world.uid(memory) for memory in memories]
    world.store.refused = {uids[2]}
    await world.drain(uncertain_for_s=0.2)

    async def others_applied() -> bool:
        return set(uids) - {uids[2]} == world.store.disk.versions.keys()

    await eventually(others_applied)
    world.store.refused = set()
    await world.settled()


async def test_what_the_store_lost_is_filled_again(world: World) -> None:
    draining_ = await world.drain()
    for number in range(3):
        await _memory(world, f"Fact number {number}.")
    await world.settled()

    world.store.disk.points.clear()
    draining_.drainer.store_was_lost()

    async def filled() -> bool:
        return len(world.store.disk.versions) == 3

    await eventually(filled)
    await world.settled()


async def test_switching_on_takes_everything_over_and_removes_what_nobody_knows(open_world) -> None:
    async with open_world() as before:
        kept, gone = await _memory(before, "Logs are kept."), await _memory(before, "Alerts are gone soon.")
        uid, gone_uid = await before.uid(kept), await before.uid(gone)
        assert [] == await before.rows()
        dsn, store = before.dsn, before.store
    async with open_world(outside=True, dsn=dsn, store=store) as on:
        await on.settled()
        assert {uid, gone_uid} == store.disk.versions.keys()
    async with open_world(dsn=dsn, store=store) as off:
        await off.connection.execute("delete from memories where uid = $1", gone_uid)
        await off.client.update(kept, tags=["changed"])
        assert [] == await off.rows()
        assert {uid, gone_uid} == store.disk.versions.keys()
    async with open_world(outside=True, dsn=dsn, store=store) as again:

        async def same() -> bool:
            return not await again.differences()

        await eventually(same)
        await again.settled()
        assert {uid} == store.disk.versions.keys()


async def test_a_server_without_the_store_leaves_the_outbox_to_one_with_it(open_world, capsys) -> None:
    async with open_world(outside=True) as on, open_world(dsn=on.dsn) as off:
        memory = (await off.client.store("Written through the server that searches Postgres.")).memory.id
        uid = await on.uid(memory)
        await on.settled()
        assert {uid} == on.store.disk.versions.keys()
    assert "outbox_left_on" in capsys.readouterr().out


async def test_a_graceful_stop_applies_what_is_due(open_world) -> None:
    async with open_world(outside=True) as world:
        world.store.gate.clear()
        await _memory(world)
        await _begun(world.store)
        await world.client.store("Another one, behind the first.")
        stop = asyncio.create_task(world.running.drain())
        world.store.gate.set()
        await stop
        assert [] == await world.rows()
        assert [] == await world.differences()


async def test_a_claim_that_was_taken_over_changes_nothing(world: World) -> None:
    await _memory(world)
    first, second = await world.outbox(uncertain_for_s=0.0), await world.outbox()

    async with first.claim(10) as work:
        assert 1 == work.memories
        # As if its session had ended long ago, and another had taken the memory over and failed.
        await first._connection.execute("select pg_advisory_unlock_all()")
        with pytest.raises(VectorIndexUnavailableError):
            await _fail_within(second)

    rows = await world.rows()
    assert [2] == [row["attempts"] for row in rows]


async def _fail_within(outbox) -> Work:
    async with outbox.claim(10) as work:
        assert 1 == work.memories
        raise VectorIndexUnavailableError("Not this time.", reason="VECTOR_INDEX_UNAVAILABLE")


async def test_a_crash_before_the_store_is_filled_is_made_up_for(world: World) -> None:
    memory = await _memory(world)
    outbox = await world.outbox()
    (generation,) = await outbox.generations()
    await world.connection.execute("delete from outbox")

    async def prepare_and_die() -> bool:
        await world.store.prepare(generation)
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await outbox.fill(generation, prepare_and_die)
    assert [] == await world.rows(memory)

    async def prepared() -> bool:
        return False

    await outbox.fill(generation, prepared)

    assert 1 == len(await world.rows(memory))


async def test_the_backlog_is_told(open_world) -> None:
    async with open_world() as world:
        outbox = await world.outbox()
        assert (0, None) == await outbox.backlog()
        await _memory(world)
        rows, oldest = await outbox.backlog()
        assert 1 == rows
        assert oldest == (await world.rows())[0]["enqueue_time"]


def _state_before(world: World, uid: UUID):
    from dataclasses import replace

    (point,) = [points[uid] for points in world.store.disk.points.values() if uid in points]
    return replace(point, tags=("old",), version=point.version - 1)


async def test_a_store_that_takes_no_writes_does_not_let_the_outbox_grow(world: World) -> None:
    for number in range(20):
        await _memory(world, f"Fact number {number}.")
    uids = {row["memory"] for row in await world.rows()}
    world.store.refused = uids
    await world.drain(uncertain_for_s=0.2)

    async def tried_often() -> bool:
        return world.store.calls["upsert"] >= 4

    await eventually(tried_often)
    rows = len(await world.rows())
    world.store.refused = set()
    await world.settled()

    assert rows <= 2 * len(uids)
