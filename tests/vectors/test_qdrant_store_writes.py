"""Writes replace whole points, scans page through them, and collections come and go."""

import asyncio
import dataclasses
from uuid import UUID

import numpy as np
import pytest
from vector_points import BUCKETS, DIMENSIONS, GENERATION, NOW, many_points, point, unit_vector

from lorebank_server.domain.errors import VectorIndexUnavailableError
from lorebank_server.domain.selector import Selector
from lorebank_server.ports.vector_store import Generation, StoredVersion
from lorebank_server.vectors import payload

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect", "ignore:Local mode performs exact")


async def found(store, vector=None, **selection):
    query = unit_vector(0) if vector is None else vector
    return list(await store.search(GENERATION, 1, BUCKETS, query, Selector(**selection), now=NOW, limit=1000))


async def scanned(store, *, space_id=None, page=1000):
    after, versions = None, []
    while read := await store.scan(GENERATION, space_id=space_id, after=after, limit=page):
        versions += read
        after = read[-1].uid
        if len(read) < page:
            break
    return versions


async def test_an_upsert_replaces_vector_and_payload(store):
    first, other = point(0, tags=("old",), subject="Ports"), point(1)
    await store.upsert(GENERATION, [first, other])
    changed = point(0, version=2, vector=-first.vector, tags=("new",), subject="Hosts", bucket_id=BUCKETS[1])
    await store.upsert(GENERATION, [changed])
    assert await found(store, tags_any=("old",)) == []
    assert await found(store, subjects=("ports",)) == []
    assert await found(store, tags_all=("new",), subjects=("hosts",)) == [first.uid]
    assert await found(store, first.vector) == [other.uid, first.uid]
    assert await scanned(store) == [StoredVersion(first.uid, 1, 2), StoredVersion(other.uid, 1, 1)]


async def test_a_point_can_be_written_again_in_its_own_version(store):
    await store.upsert(GENERATION, [point(0, tags=("half",))])
    await store.upsert(GENERATION, [point(0, tags=("whole",))])
    assert await found(store, tags_all=("whole",)) == [point(0).uid]


async def test_an_earlier_version_changes_nothing_and_its_batch_goes_on(store):
    if not await store._upserts_conditionally():
        pytest.skip("this server is older than 1.16")
    await store.upsert(GENERATION, [point(0, version=7, tags=("new",)), point(1, version=3)])
    await store.upsert(GENERATION, [point(0, version=6, tags=("old",)), point(1, version=4), point(2, version=1)])
    assert await found(store, tags_any=("old",)) == []
    assert [version.version for version in await scanned(store)] == [7, 4, 1]


async def test_deleting_removes_whatever_is_there(store):
    await store.upsert(GENERATION, [point(number) for number in range(4)])
    await store.delete(GENERATION, [point(1).uid, point(3).uid, point(99).uid])
    await store.delete(GENERATION, [point(1).uid])
    await store.delete(GENERATION, [])
    assert {point(0).uid, point(2).uid} == set(await found(store))


async def test_a_deleted_point_comes_back_when_it_is_written(store):
    await store.upsert(GENERATION, [point(0, version=5)])
    await store.delete(GENERATION, [point(0).uid])
    await store.upsert(GENERATION, [point(0, version=4)])
    assert await scanned(store) == [StoredVersion(point(0).uid, 1, 4)]


@pytest.mark.parametrize("page", [7, 300, 1000])
@pytest.mark.parametrize("space_id", [None, 1, 2])
async def test_a_scan_pages_through_all_points_in_order_of_uid(filled, space_id, page):
    wanted = [
        StoredVersion(p.uid, p.space_id, p.version)
        for p in sorted(many_points(), key=lambda p: p.uid)
        if space_id in {None, p.space_id}
    ]
    assert wanted == await scanned(filled, space_id=space_id, page=page)


async def test_a_scan_begins_after_the_uid_given(store):
    await store.upsert(GENERATION, [point(number) for number in range(3)])
    uids = [v.uid for v in await store.scan(GENERATION, space_id=None, after=point(0).uid, limit=10)]
    assert [point(1).uid, point(2).uid] == uids
    assert await store.scan(GENERATION, space_id=None, after=UUID(int=2**128 - 1), limit=10) == []
    assert await store.scan(GENERATION, space_id=None, after=None, limit=0) == []


async def test_many_large_points_are_written_in_several_messages(connect, double):
    wide = Generation(number=3, dimensions=2048)
    points = [dataclasses.replace(point(number), vector=np.resize(unit_vector(number), 2048)) for number in range(300)]
    store = connect()
    await store.prepare(wide)
    await store.upsert(wide, points)
    sizes = [request.ByteSize() for request in double.sent("Upsert")]
    assert len(sizes) > 1
    assert max(sizes) <= 2 * 1024 * 1024
    assert len(await store.scan(wide, space_id=None, after=None, limit=1000)) == 300


async def test_no_message_holds_more_than_256_points(connect, double):
    store = connect()
    await store.prepare(GENERATION)
    await store.upsert(GENERATION, [point(number) for number in range(300)])
    await store.delete(GENERATION, [point(number).uid for number in range(300)])
    assert [len(request.points) for request in double.sent("Upsert")] == [256, 44]
    assert [len(request.points.points.ids) for request in double.sent("DeletePoints")] == [256, 44]
    assert await scanned(store) == []


async def test_a_generation_has_to_be_filled_until_it_holds_a_point(store):
    assert await store.prepare(GENERATION)
    await store.upsert(GENERATION, [point(0)])
    assert not await store.prepare(GENERATION)
    assert await scanned(store) == [StoredVersion(point(0).uid, 1, 1)]


async def test_a_generation_has_to_be_filled_again_when_a_field_was_added(store, monkeypatch):
    await store.upsert(GENERATION, [point(0), point(1)])
    assert not await store.prepare(GENERATION)
    mood = dataclasses.replace(payload.FIELDS[-1], name="mood", value=lambda _: "calm")
    monkeypatch.setattr(payload, "FIELDS", (*payload.FIELDS, mood))
    assert await store.prepare(GENERATION)
    await store.upsert(GENERATION, [point(0)])
    assert await store.prepare(GENERATION)
    await store.upsert(GENERATION, [point(1)])
    assert not await store.prepare(GENERATION)


async def test_servers_that_prepare_at_once_agree(connect, double):
    stores = [connect() for _ in range(4)]
    assert await asyncio.gather(*(store.prepare(GENERATION) for store in stores)) == [True] * 4
    assert len(double.sent("CreateCollection")) > 1
    description = await double.local.get_collections()
    assert [collection.name for collection in description.collections] == ["lorebank-1-24"]


async def test_every_field_is_indexed_and_only_missing_indexes_are_made(connect, double):
    await connect().prepare(GENERATION)
    names = [request.field_name for request in double.sent("CreateFieldIndex")]
    assert sorted(field.name for field in payload.FIELDS) == sorted(names)
    double.requests.clear()
    await connect().prepare(GENERATION)
    assert double.sent("CreateFieldIndex") == []
    assert double.sent("CreateCollection") == []


async def test_dropping_removes_a_generation_and_no_other(store):
    other = Generation(number=2, dimensions=DIMENSIONS)
    assert await store.prepare(other)
    await store.upsert(GENERATION, [point(0)])
    await store.upsert(other, [point(1)])
    await store.drop(other)
    await store.drop(other)
    assert await store.scan(other, space_id=None, after=None, limit=10) == []
    assert await scanned(store) == [StoredVersion(point(0).uid, 1, 1)]
    assert await store.prepare(other)
    await store.drop(other)


async def test_what_is_not_prepared_is_empty_to_scans_and_deletes_and_an_error_to_the_rest(store):
    lost = Generation(number=9, dimensions=DIMENSIONS)
    assert await store.scan(lost, space_id=1, after=None, limit=10) == []
    await store.delete(lost, [point(0).uid])
    with pytest.raises(VectorIndexUnavailableError) as searching:
        await store.search(lost, 1, BUCKETS, unit_vector(0), Selector(), now=NOW, limit=10)
    with pytest.raises(VectorIndexUnavailableError) as writing:
        await store.upsert(lost, [point(0)])
    assert searching.value.reason == writing.value.reason == "VECTOR_INDEX_NOT_PREPARED"


async def test_the_store_answers_a_check(store):
    await store.check()


async def test_a_closed_store_refuses(connect):
    closed = connect()
    await closed.check()
    await closed.aclose()
    await closed.aclose()
    with pytest.raises(VectorIndexUnavailableError):
        await closed.check()
