"""DeleteMemory and UndeleteMemory: hidden, readable, and back again."""

from datetime import UTC

import grpc
import pytest

from lorebank import LorebankError
from lorebank.v1 import memory_pb2, revision_pb2

FACT = "The staging database is wiped every Monday."
Change = revision_pb2.Revision


async def test_a_deleted_memory_is_hidden_from_search_and_lists_but_readable(me, time):
    stored = await me.store(FACT)
    time.advance(minutes=1)
    deleted = await me.client.delete(stored.id)
    assert (memory_pb2.STATE_DELETED, 2, time()) == (
        deleted.state,
        deleted.revision,
        deleted.delete_time.ToDatetime(tzinfo=UTC),
    )
    assert ([], [], [], []) == (
        await me.listed(),
        await me.found("staging"),
        await me.found("staging", mode="semantic"),
        await me.found("staging", mode="lexical"),
    )
    assert deleted == await me.client.get(stored.id)
    assert [stored.id] == await me.listed(states=["deleted"])
    for mode in ("hybrid", "semantic", "lexical"):
        assert [stored.id] == await me.found("staging", mode=mode, states=["deleted"])


async def test_deleting_and_undeleting_again_changes_nothing(me, time):
    stored = await me.store(FACT)
    deleted = await me.client.delete(stored.id)
    time.advance(minutes=1)
    again = await me.client.delete(stored.id)
    assert (deleted.etag, deleted.delete_time) == (again.etag, again.delete_time)
    restored = await me.client.undelete(stored.id)
    assert restored == await me.client.undelete(stored.id)
    assert [Change.CHANGE_CREATE, Change.CHANGE_DELETE, Change.CHANGE_UNDELETE] == [
        revision.change for revision in await me.histories(stored.id)
    ]


async def test_a_restored_memory_is_found_and_listed_again(me):
    stored = await me.store(FACT)
    await me.client.delete(stored.id)
    restored = await me.client.undelete(stored.id)
    assert (memory_pb2.STATE_ACTIVE, 3, False) == (restored.state, restored.revision, restored.HasField("delete_time"))
    for mode in ("hybrid", "semantic", "lexical"):
        assert [stored.id] == await me.found("staging", mode=mode)
    assert [stored.id] == await me.listed()


async def test_a_current_etag_lets_both_pass(me):
    stored = await me.store(FACT)
    deleted = await me.client.delete(stored.id, etag=stored.etag)
    restored = await me.client.undelete(stored.id, etag=deleted.etag)
    with pytest.raises(LorebankError) as caught:
        await me.client.delete(stored.id, etag=deleted.etag)
    assert (grpc.StatusCode.ABORTED, "ETAG_MISMATCH") == (caught.value.code, caught.value.reason)
    assert restored == await me.client.get(stored.id)


async def test_a_superseded_memory_comes_back_only_without_a_living_successor(me):
    old = await me.store(FACT)
    new = (await me.client.supersede(old.id, "The staging database is never wiped.")).memory
    with pytest.raises(LorebankError) as caught:
        await me.client.undelete(old.id)
    assert (grpc.StatusCode.FAILED_PRECONDITION, "SUPERSEDED", {"superseded_by": new.id}) == (
        caught.value.code,
        caught.value.reason,
        dict(caught.value.metadata),
    )
    assert f"Delete {new.id} first" in caught.value.message
    await me.client.delete(new.id)
    back = await me.client.undelete(old.id)
    assert (memory_pb2.STATE_ACTIVE, "") == (back.state, back.superseded_by)
    assert [] == list((await me.client.get(new.id)).supersedes)


async def test_the_living_successor_that_is_named_is_the_last_of_the_chain(me):
    first = await me.store(FACT)
    second = (await me.client.supersede(first.id, "Wiped every Tuesday.")).memory
    third = (await me.client.supersede(second.id, "Wiped every Wednesday.")).memory
    with pytest.raises(LorebankError) as caught:
        await me.client.undelete(first.id)
    assert third.id == caught.value.metadata["superseded_by"]
    await me.client.delete(third.id)
    assert memory_pb2.STATE_ACTIVE == (await me.client.undelete(first.id)).state


async def test_deleting_a_superseded_memory_keeps_its_successor(me):
    old = await me.store(FACT)
    new = (await me.client.supersede(old.id, "Never wiped.")).memory
    deleted = await me.client.delete(old.id)
    assert (memory_pb2.STATE_DELETED, new.id) == (deleted.state, deleted.superseded_by)
    assert [old.id] == list((await me.client.get(new.id)).supersedes)


async def test_only_admins_delete_and_restore_what_is_global(here, me):
    stored = await me.store(FACT, scope="global")
    writer = await here.caller("writer")
    for attempt in (
        writer.client.delete(stored.id),
        writer.client.undelete(stored.id),
        writer.client.update(stored.id, content="Other words."),
        writer.client.supersede(stored.id, "Other words."),
    ):
        with pytest.raises(LorebankError) as caught:
            await attempt
        assert (grpc.StatusCode.PERMISSION_DENIED, "ADMIN_REQUIRED") == (caught.value.code, caught.value.reason)
    assert stored == await me.client.get(stored.id)
