"""UpdateMemory: the same memory one revision on, its words found anew."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from spaces_apart import outcome

from lorebank import LorebankError
from lorebank.v1 import card_pb2, memory_pb2, provenance_pb2, write_pb2

FACT = "The staging database is wiped every Monday."


def update(memory_id, *paths, **fields):
    envelope = {name: fields.pop(name) for name in ("reason", "request_id") if name in fields}
    mask = FieldMask(paths=paths) if paths else None
    memory = memory_pb2.Memory(id=memory_id, **fields)
    return write_pb2.UpdateMemoryRequest(memory=memory, update_mask=mask, **envelope)


async def test_a_correction_is_the_next_revision_of_the_same_memory(me, time):
    stored = await me.store(FACT, tags=["staging"])
    time.advance(hours=1)
    answer = await me.call(update(stored.id, "content", content="The staging database is wiped every Friday."))
    assert (stored.id, 1, FACT) == (answer.previous.id, answer.previous.revision, answer.previous.content)
    now = answer.memory
    assert (stored.id, stored.uid, 2, ["staging"]) == (now.id, now.uid, now.revision, list(now.tags))
    assert stored.etag != now.etag
    assert stored.content_hash != now.content_hash
    assert (stored.create_time, time()) == (now.create_time, now.update_time.ToDatetime(tzinfo=UTC))
    assert now == await me.client.get(stored.id)


async def test_without_a_mask_what_is_not_empty_is_taken_over(me):
    stored = await me.store(FACT, title="Staging", tags=["staging"], pinned=True)
    now = (await me.call(update(stored.id, title="Reset", subject="staging"))).memory
    assert ("Reset", "staging", ["staging"], True, FACT) == (
        now.title,
        now.subject,
        list(now.tags),
        now.pinned,
        now.content,
    )


async def test_a_path_that_is_named_and_empty_is_cleared(me):
    stored = await me.store(FACT, title="Staging", tags=["staging"], pinned=True, confidence=0.3, utility=0.9)
    now = (await me.call(update(stored.id, "title", "tags", "pinned", "utility", "confidence"))).memory
    assert ("", [], False, False) == (now.title, list(now.tags), now.pinned, now.HasField("utility"))
    assert 0.8 == now.confidence, "the default of its origin takes its place"


async def test_nested_paths_change_their_part_alone(me):
    card = card_pb2.Card(summary="Old.", gotchas=["Keep."], triage={"symptoms": ["Keep too."], "fix_steps": ["Old."]})
    where = provenance_pb2.Applicability(repo="shop", runtime="py311")
    stored = await me.store(FACT, card=card, applicability=where)
    now = (
        await me.call(
            update(
                stored.id,
                "card.summary",
                "card.triage.fix_steps",
                "applicability.runtime",
                "provenance.agent",
                card=card_pb2.Card(summary="New.", triage={"fix_steps": ["New."]}),
                provenance=provenance_pb2.Provenance(agent="claude"),
            )
        )
    ).memory
    assert ("New.", ["Keep."], ["Keep too."], ["New."]) == (
        now.card.summary,
        list(now.card.gotchas),
        list(now.card.triage.symptoms),
        list(now.card.triage.fix_steps),
    )
    assert ("shop", "", "claude") == (now.applicability.repo, now.applicability.runtime, now.provenance.agent)


@pytest.mark.parametrize(
    "fields",
    [{"content": FACT}, {"tags": ["STAGING"]}, {"title": " Staging "}, {"category": "fact"}, {"pinned": False}],
)
async def test_values_that_are_there_already_make_no_revision(here, me, fields):
    stored = await me.store(FACT, tags=["staging"], title="Staging", category="fact")
    answer = await me.call(update(stored.id, *fields, **fields))
    assert (stored, stored) == (answer.memory, answer.previous)
    assert 1 == await here.rows("revisions")


async def test_a_repeated_request_gets_the_first_answer_though_the_memory_moved_on(here, me):
    stored = await me.store(FACT)
    request = update(stored.id, content="Wiped every Friday.", request_id=str(uuid4()))
    first = await me.call(request)
    await me.client.update(stored.id, content="Never wiped at all.")
    again = await me.call(request)
    assert ("Wiped every Friday.", 2, FACT, 1) == (
        again.memory.content,
        again.memory.revision,
        again.previous.content,
        again.previous.revision,
    )
    assert first.memory.etag == again.memory.etag
    assert 3 == await here.rows("revisions")


async def test_a_repeated_request_that_changed_nothing_is_answered_alike(me):
    stored = await me.store(FACT)
    request = update(stored.id, content=FACT, request_id=str(uuid4()))
    assert await me.call(request) == await me.call(request)


async def test_an_invalid_correction_changes_nothing(here, me):
    stored = await me.store(FACT)
    error = await me.refused(update(stored.id, "content", content="x"))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "memory.content") == (error.code, error.violations[0].field)
    error = await me.refused(update(stored.id, "content"))
    assert grpc.StatusCode.INVALID_ARGUMENT == error.code
    assert (stored, 1) == (await me.client.get(stored.id), await here.rows("revisions"))


@pytest.mark.parametrize("ending", ["delete", "supersede"])
async def test_what_is_not_active_cannot_be_corrected(me, ending):
    stored = await me.store(FACT)
    if ending == "delete":
        await me.client.delete(stored.id)
        expected = ("NOT_ACTIVE", {"state": "DELETED"}, "undelete it")
    else:
        successor = (await me.client.supersede(stored.id, "Never wiped.")).memory.id
        expected = ("SUPERSEDED", {"superseded_by": successor}, f"change {successor} instead")
    error = await me.refused(update(stored.id, content="Wiped every Friday."))
    reason, metadata, saying = expected
    assert (grpc.StatusCode.FAILED_PRECONDITION, reason, metadata) == (error.code, error.reason, dict(error.metadata))
    assert stored.id == error.preconditions[0].subject
    assert saying in error.message


async def test_a_corrected_memory_is_found_by_its_new_words_and_meaning_only(me):
    stored = await me.store("The zebra exporter listens on port 9431.")
    for number in range(5):
        await me.store(f"Unrelated remark number {number} about cooking soup.")
    await me.client.update(stored.id, content="Maren prefers peppermint tea in the afternoon.")
    assert [stored.id] == await me.found("peppermint", mode="lexical")
    assert stored.id == (await me.found("which hot drink does she like?", mode="semantic"))[0]
    assert [] == await me.found("zebra exporter", mode="lexical")
    hits = (await me.find("zebra exporter port 9431", mode="semantic")).hits
    assert 0.5 > max((hit.parts.similarity for hit in hits if hit.memory.id == stored.id), default=0.0)


async def test_keywords_and_tags_are_searched_too_and_labels_alone_are_not(me):
    stored = await me.store(FACT)
    await me.client.update(stored.id, keywords=["xylophone"], collection="marimba")
    assert [stored.id] == await me.found("xylophone", mode="lexical")
    assert [] == await me.found("marimba", mode="lexical")


async def test_of_corrections_at_once_with_one_etag_exactly_one_wins(here, me):
    stored = await me.store(FACT)
    callers = [await here.another_connection(me) for _ in range(8)]

    attempts = [
        outcome(each.client.update(stored.id, content=f"Correction number {n}.", etag=stored.etag))
        for n, each in enumerate(callers)
    ]
    outcomes = await asyncio.gather(*attempts)
    now = await me.client.get(stored.id)
    assert [now] == [each.memory for each in outcomes if not isinstance(each, LorebankError)]
    assert ["ETAG_MISMATCH"] * 7 == [each.reason for each in outcomes if isinstance(each, LorebankError)]
    assert 2 == now.revision


async def test_corrections_at_once_without_etags_all_apply_without_gaps(here, me):
    stored = await me.store(FACT)
    callers = [await here.another_connection(me) for _ in range(8)]
    await asyncio.gather(
        *[each.client.update(stored.id, content=f"Correction number {n}.") for n, each in enumerate(callers)]
    )
    revisions = await me.histories(stored.id)
    assert list(range(1, 10)) == [revision.revision for revision in revisions]
    assert {f"Correction number {n}." for n in range(8)} == {r.memory.content for r in revisions[1:]}
    assert revisions[-1].memory.content == (await me.client.get(stored.id)).content


async def test_corrections_of_different_fields_at_once_are_merged(here, me):
    stored = await me.store(FACT)
    changes = [{"title": "T"}, {"subject": "S"}, {"tags": ["t"]}, {"context": "C"}, {"pinned": True}]
    callers = [await here.another_connection(me) for _ in changes]
    await asyncio.gather(*[c.client.update(stored.id, **change) for c, change in zip(callers, changes, strict=True)])
    now = await me.client.get(stored.id)
    assert ("T", "S", ["t"], "C", True, 6) == (
        now.title,
        now.subject,
        list(now.tags),
        now.context,
        now.pinned,
        now.revision,
    )


async def test_pinning_stops_decay_and_unpinning_starts_it_again(me, time):
    stored = await me.store("A fact that fades.")
    await me.client.update(stored.id, pinned=True)
    time.advance(days=400)
    pinned = await me.client.get(stored.id)
    assert (1.0, 0.7, False) == (pinned.quality.retention, pinned.quality.strength, pinned.quality.stale)
    assert [stored.id] == await me.found("fades")
    faded = await me.client.update(stored.id, pinned=False)
    assert faded.memory.quality.stale
    assert [] == await me.found("fades")
    assert [stored.id] == await me.found("fades", include_stale=True)


async def test_a_correction_keeps_what_the_memory_has_earned(me, time):
    stored = await me.store(FACT)
    voted = (await me.client.upvote(stored.id)).memories[0]
    time.advance(days=1)
    now = (await me.client.update(stored.id, content="The staging database is wiped every Friday.")).memory
    assert (1, voted.quality.reputation) == (now.quality.upvotes, now.quality.reputation)
    assert 0.5 ** (1 / 90) == pytest.approx(now.quality.retention), "a correction is no confirmation"


async def test_the_time_that_a_fact_ends_may_be_moved(me, time):
    stored = await me.store("The sale ends soon.", valid_until=datetime(2020, 1, 1, tzinfo=UTC))
    assert [] == await me.found("sale")
    await me.client.update(stored.id, valid_until=time() + timedelta(days=365))
    assert [stored.id] == await me.found("sale")
    assert [stored.id] == await me.found("sale", mode="semantic")
