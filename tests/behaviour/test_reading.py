"""GetMemory, BatchGetMemories and ListRevisions."""

from uuid import UUID

import pytest
from spaces_apart import store_request

from lorebank import LorebankError
from lorebank.v1 import memory_pb2, provenance_pb2, read_pb2, revision_pb2, store_pb2
from lorebank.v1.card_pb2 import Card

FACT = "The staging database is wiped every Monday."
Change = revision_pb2.Revision


async def test_a_memory_is_read_by_each_of_its_names(me):
    stored = await me.store(FACT, key="staging")
    uid = UUID(stored.uid)
    for name in ({"id": stored.id}, {"key": "staging"}, {"uid": str(uid)}, {"uid": str(uid).upper()}, {"uid": uid.hex}):
        assert stored == (await me.call(read_pb2.GetMemoryRequest(**name))).memory


async def test_ids_are_read_in_the_order_asked_for_and_what_is_missing_is_named(me):
    first, second, third = [await me.store(f"Fact number {n}.") for n in range(3)]
    await me.client.delete(second.id)
    answer = await me.client.get_many([third.id, "zzzzzzzz", second.id, first.id, third.id, "", "yyyyyyyy", "zzzzzzzz"])
    assert [third.id, second.id, first.id] == [memory.id for memory in answer.memories]
    assert ["zzzzzzzz", "", "yyyyyyyy"] == list(answer.missing)
    assert memory_pb2.STATE_DELETED == answer.memories[1].state


async def test_a_summary_leaves_out_what_is_long(me):
    fields = {
        "card": Card(summary="s"),
        "context": "c",
        "keywords": ["k"],
        "attributes": {"a": 1},
        "applicability": provenance_pb2.Applicability(repo="r"),
        "provenance": provenance_pb2.Provenance(agent="a"),
    }
    stored = await me.store(FACT, title="Title", tags=["t"], subject="s", **fields)
    read = await me.client.get_many([stored.id], view="summary")
    listed = await me.call(read_pb2.ListMemoriesRequest(view=memory_pb2.VIEW_SUMMARY))
    found = await me.find("staging", view="summary")
    for memory in (read.memories[0], listed.memories[0], found.hits[0].memory):
        present = {field.name for field, _ in memory.ListFields()}
        assert set() == present & {*fields, "usage"}
        assert {"id", "uid", "etag", "content", "title", "tags", "subject", "quality", "content_hash"} <= present
    full = await me.client.get_many([stored.id])
    assert set(fields) <= {field.name for field, _ in full.memories[0].ListFields()}


async def test_a_history_tells_who_did_what_why_and_in_which_run(here, me, time):
    other = await here.caller("other")
    origin = provenance_pb2.Provenance(run="run-1", conversation="talk-1")
    stored = await me.store(FACT, scope="team", provenance=origin)
    time.advance(minutes=1)
    changed = provenance_pb2.Provenance(run="run-2", conversation="talk-2")
    await other.client.update(stored.id, content="Wiped on Friday.", provenance=changed, reason="It moved.")
    await me.client.delete(stored.id)
    await me.client.undelete(stored.id)
    await other.client.supersede(
        stored.id, "Never wiped.", reason="Abolished.", provenance=provenance_pb2.Provenance(run="run-3")
    )
    history = await me.histories(stored.id)
    assert [
        (1, Change.CHANGE_CREATE, "tester", "", "run-1", "talk-1", memory_pb2.STATE_ACTIVE, FACT),
        (2, Change.CHANGE_UPDATE, "other", "It moved.", "run-2", "talk-2", memory_pb2.STATE_ACTIVE, "Wiped on Friday."),
        (3, Change.CHANGE_DELETE, "tester", "", "", "", memory_pb2.STATE_DELETED, "Wiped on Friday."),
        (4, Change.CHANGE_UNDELETE, "tester", "", "", "", memory_pb2.STATE_ACTIVE, "Wiped on Friday."),
        (
            5,
            Change.CHANGE_SUPERSEDE,
            "other",
            "Abolished.",
            "run-3",
            "",
            memory_pb2.STATE_SUPERSEDED,
            "Wiped on Friday.",
        ),
    ] == [
        (r.revision, r.change, r.actor, r.reason, r.run, r.conversation, r.memory.state, r.memory.content)
        for r in history
    ]
    assert [r.revision for r in history] == [r.memory.revision for r in history]
    assert not any(r.memory.HasField("quality") or r.memory.HasField("usage") for r in history)
    assert history[0].create_time.ToSeconds() + 60 == history[1].create_time.ToSeconds()


async def test_the_first_revision_of_a_successor_says_why_it_came(me):
    old = await me.store(FACT)
    new = (await me.client.supersede(old.id, "Never wiped.", reason="Abolished.")).memory
    (first,) = await me.histories(new.id)
    assert (Change.CHANGE_CREATE, "Abolished.") == (first.change, first.reason)


async def test_a_history_comes_page_by_page_oldest_first(me):
    stored = await me.store(FACT)
    for number in range(6):
        await me.client.update(stored.id, title=f"Title {number}")
    sizes, numbers, token = [], [], ""
    while True:
        page = await me.call(revision_pb2.ListRevisionsRequest(id=stored.id, page_size=3, page_token=token))
        sizes.append(len(page.revisions))
        numbers += [revision.revision for revision in page.revisions]
        token = page.next_page_token
        if not token:
            break
    assert ([3, 3, 1], list(range(1, 8))) == (sizes, numbers)


async def test_the_token_of_one_history_does_not_continue_another(me):
    first, second = await me.store(FACT), await me.store("Another fact.")
    await me.client.update(first.id, title="Title")
    page = await me.call(revision_pb2.ListRevisionsRequest(id=first.id, page_size=1))
    error = await me.refused(revision_pb2.ListRevisionsRequest(id=second.id, page_token=page.next_page_token))
    assert "INVALID_PAGE_TOKEN" == error.reason


async def test_what_others_keep_to_themselves_looks_like_nothing_on_every_procedure(here, me):
    other = await here.caller("other")
    secret = await me.store("My password hint is blue.", key="hint")
    for attempt in (
        other.client.get(secret.id),
        other.client.get(uid=secret.uid),
        other.client.get(key="hint"),
        other.client.update(secret.id, content="Gotcha."),
        other.client.delete(secret.id),
        other.client.undelete(secret.id),
        other.client.supersede(secret.id, "Gotcha."),
        other.client.upvote(secret.id),
        other.client.graph(secret.id),
        other.client.find(similar_to=secret.id),
        other.histories(secret.id),
        other.client.store("A fact with a link.", links=[("about", secret.id)]),
    ):
        with pytest.raises(LorebankError) as caught:
            await attempt
        assert "MEMORY_NOT_FOUND" == caught.value.reason
    assert [secret.id] == list((await other.client.get_many([secret.id])).missing)
    assert ([], []) == (await other.found("password hint"), await other.listed())
    assert secret == await me.client.get(secret.id)


async def test_a_reader_reads_and_writes_nothing(here, me):
    stored = await me.store(FACT, scope="team")
    reader = await here.caller("reader", role="reader")
    assert [stored.id] == await reader.found("staging")
    assert stored == await reader.client.get(stored.id)
    for request in (
        store_request("A reader writes."),
        store_pb2.BatchStoreRequest(requests=[store_request("A reader writes.")]),
        store_pb2.SupersedeRequest(ids=[stored.id], memory=memory_pb2.Memory(content="A reader writes.")),
    ):
        assert "ROLE_REQUIRED" == (await reader.refused(request)).reason
