"""Every difference between rows and vectors is found, in both directions, and put right on request."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import asyncpg
import pytest
from outbox_world import OpenWorld, World, eventually

from lorebank import AsyncClient, Unavailable
from lorebank.errors import NotFound, PermissionDenied
from lorebank.v1.maintenance_pb2 import CheckIntegrityResponse
from lorebank_server.operations import integrity
from lorebank_server.postgres import inventory

_FACTS = [f"Fact number {number} of the release notes." for number in range(12)]


async def _check(world: World, **options) -> CheckIntegrityResponse:
    return await world.client.spaces.check_integrity(**options)


def _counts(found: CheckIntegrityResponse) -> dict[str, int]:
    return {
        name: getattr(found, name)
        for name in ("memories", "vectors", "missing", "orphaned", "outdated", "repaired")
        if getattr(found, name)
    }


async def _filled(world: World) -> list[str]:
    memories = [(await world.client.store(fact)).memory.id for fact in _FACTS]
    await world.client.delete(memories[0])
    await world.settled()
    return memories


async def _until_well(world: World) -> CheckIntegrityResponse:
    async def well() -> CheckIntegrityResponse | None:
        found = await _check(world)
        return None if found.missing or found.orphaned or found.outdated or found.pending else found

    return await eventually(well)


async def test_all_is_well_at_first(outside: World) -> None:
    await _filled(outside)

    found = await _check(outside)

    assert {"memories": 12, "vectors": 12} == _counts(found)
    assert ("qdrant", 0, 0.0) == (found.index, found.pending, found.index_lag.ToTimedelta().total_seconds())
    assert found.schema >= 5
    assert found.server_version
    assert found.postgres_version


async def test_each_planted_difference_in_the_store_is_counted_and_repaired(outside: World) -> None:
    memories = await _filled(outside)
    uids = [await outside.uid(memory) for memory in memories]
    (points,) = outside.store.disk.points.values()
    lost = [points.pop(uid) for uid in uids[1:4]]
    points[uids[5]] = replace(points[uids[5]], version=points[uids[5]].version - 1, tags=("old",))
    strays = {uuid4(): lost[0] for _ in range(2)}
    points |= {uid: replace(point, uid=uid) for uid, point in strays.items()}
    abandoned = uuid4()
    points[abandoned] = replace(lost[0], uid=abandoned, space_id=4711)

    found = await _check(outside)
    again = await _check(outside)
    repaired = await _check(outside, repair=True)

    expected = {"memories": 12, "vectors": 11, "missing": 3, "orphaned": 3, "outdated": 1}
    assert expected == _counts(found) == _counts(again)
    assert expected | {"repaired": 7} == _counts(repaired)
    assert {"memories": 12, "vectors": 12} == _counts(await _until_well(outside))
    await outside.settled()
    assert set(uids) == set(points)
    assert () == points[uids[5]].tags


async def test_a_store_that_is_ahead_of_a_restored_database_is_put_right(outside: World) -> None:
    memories = await _filled(outside)
    uid = await outside.uid(memories[3])
    (points,) = outside.store.disk.points.values()
    points[uid] = replace(points[uid], version=1_000_000, tags=("from the future",))

    found = await _check(outside, repair=True)
    await _until_well(outside)

    assert 1 == found.outdated
    assert () == points[uid].tags
    assert points[uid].version > 1_000_000
    await outside.settled()


async def test_what_waits_is_no_difference(outside: World) -> None:
    memories = await _filled(outside)
    outside.store.gate.clear()
    await outside.client.store("Not there yet.")
    await outside.client.update(memories[1], tags=["later"])
    await outside.connection.execute("delete from memories where id = $1", memories[2])

    found = await _check(outside)

    assert {"memories": 12, "vectors": 12} == _counts(found)
    assert 3 == found.pending
    outside.store.gate.set()
    await outside.settled()


async def test_what_is_written_meanwhile_is_no_difference(outside: World) -> None:
    await _filled(outside)
    stop = asyncio.Event()

    async def write(number: int) -> None:
        while not stop.is_set():
            memory = (await outside.client.store(f"Written by {number} while it is checked: {uuid4()}.")).memory.id
            await outside.client.update(memory, tags=["changed"])
            await outside.client.delete(memory)

    async with asyncio.TaskGroup() as writers:
        for number in range(4):
            writers.create_task(write(number))
        checks = [_counts(await _check(outside)) for _ in range(15)]
        stop.set()

    assert all(set(check) == {"memories", "vectors"} for check in checks)


async def test_rows_are_checked_wherever_vectors_are_searched(open_world: OpenWorld) -> None:
    async with open_world() as world:
        memories = [(await world.client.store(fact)).memory.id for fact in _FACTS]
        uids = [await world.uid(memory) for memory in memories]
        owner = await asyncpg.connect(world.dsn)
        await owner.execute("delete from embeddings where memory = any ($1)", uids[:2])
        await owner.execute("update embeddings set text_hash = '\\x00' where memory = $1", uids[2])
        await owner.execute("update embeddings set found_until = '-infinity' where memory = $1", uids[3])
        await owner.execute("set session_replication_role = replica")  # past the foreign keys
        await owner.execute("delete from memories where uid = $1", uids[4])
        await owner.close()

        found = await _check(world)
        repaired = await _check(world, repair=True)

        expected = {"memories": 11, "vectors": 10, "missing": 2, "orphaned": 1, "outdated": 2}
        assert ("pgvector", expected) == (found.index, _counts(found))
        assert expected | {"repaired": 5} == _counts(repaired)
        assert {"memories": 11, "vectors": 11} == _counts(await _until_well(world))
        assert memories[3] in [hit.memory.id for hit in (await world.client.find(_FACTS[3])).hits]


async def test_it_pages_through_more_than_fits_at_once(outside: World, monkeypatch) -> None:
    monkeypatch.setattr(integrity, "_PAGE", 5)
    monkeypatch.setattr(inventory, "PAGE", 3)
    memories = await _filled(outside)
    (points,) = outside.store.disk.points.values()
    del points[await outside.uid(memories[7])]
    del points[await outside.uid(memories[11])]
    for _ in range(9):
        uid = uuid4()
        points[uid] = replace(next(iter(points.values())), uid=uid)

    assert {"memories": 12, "vectors": 19, "missing": 2, "orphaned": 9} == _counts(await _check(outside))


async def test_a_store_that_is_away_is_unavailable(outside: World) -> None:
    await _filled(outside)
    outside.store.down = True
    async with AsyncClient(outside.address) as client:
        with pytest.raises(Unavailable) as caught:
            await client.spaces.check_integrity()
    assert "VECTOR_INDEX_UNAVAILABLE" == caught.value.reason


async def test_only_an_admin_may_check_and_only_its_own_space(outside: World) -> None:
    admin = (await outside.client.keys.create("carol", roles=["admin"])).secret
    async with AsyncClient(outside.address, api_key=admin) as carol:
        await carol.spaces.create("acme")
        writer = (await carol.keys.create("ada", roles=["reviewer"])).secret
        async with AsyncClient(outside.address, api_key=admin, space="acme") as acme:
            tenant = (await acme.keys.create("tim", roles=["admin"])).secret
        assert 0 == (await carol.spaces.check_integrity("acme")).memories
    async with AsyncClient(outside.address, api_key=writer) as ada:
        with pytest.raises(PermissionDenied):
            await ada.spaces.check_integrity()
    async with AsyncClient(outside.address, api_key=tenant) as tim:
        assert 0 == (await tim.spaces.check_integrity()).memories
        with pytest.raises(NotFound):
            await tim.spaces.check_integrity("default")


async def test_a_check_of_one_space_leaves_out_the_others(outside: World) -> None:
    await _filled(outside)
    (points,) = outside.store.disk.points.values()
    abandoned = uuid4()
    points[abandoned] = replace(next(iter(points.values())), uid=abandoned, space_id=4711)
    await outside.client.spaces.create("acme")

    assert {} == _counts(await _check(outside, space="acme"))
    assert 1 == (await _check(outside, space="default")).orphaned
