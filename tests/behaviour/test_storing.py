"""Store: what is kept, what counts as the same, and what a repeat is answered."""

from datetime import UTC
from uuid import UUID, uuid4

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from spaces_apart import store_request

from lorebank.v1 import memory_pb2, on_duplicate_pb2, provenance_pb2, store_pb2
from lorebank.v1.card_pb2 import OUTCOME_SUCCESS, Card
from lorebank_server.domain.ids import is_short_id

CREATED, UNCHANGED = store_pb2.StoreResponse.RESULT_CREATED, store_pb2.StoreResponse.RESULT_UNCHANGED
KEEP_BOTH = on_duplicate_pb2.ON_DUPLICATE_KEEP_BOTH
FACT = "The staging database is wiped every Monday."
TABLES = ("memories", "revisions", "embeddings", "relations", "buckets", "answers", "usages")
Origin = provenance_pb2.Provenance


async def test_an_equal_fact_is_answered_with_the_one_that_is_there(me):
    first = await me.call(store_request(FACT))
    second = await me.call(store_request(FACT))
    assert (CREATED, UNCHANGED) == (first.result, second.result)
    assert first.memory == second.memory
    assert [first.memory.id] == await me.listed()


async def test_keep_both_keeps_both(me):
    first = await me.call(store_request(FACT))
    second = await me.call(store_request(FACT, on_duplicate=KEEP_BOTH))
    assert CREATED == second.result
    assert first.memory.content_hash == second.memory.content_hash
    assert {first.memory.id, second.memory.id} == set(await me.listed())


@pytest.mark.parametrize(
    "difference",
    [
        {"content": FACT + " "},
        {"title": "Staging"},
        {"subject": "staging"},
        {"scope": memory_pb2.SCOPE_TEAM},
        {"project": "shop"},
        {"kind": memory_pb2.KIND_EPISODIC},
        {"card": Card(summary="Wiped weekly.")},
        {"applicability": provenance_pb2.Applicability(repo="shop")},
    ],
)
async def test_a_fact_that_differs_in_what_it_says_or_where_it_lives_is_another_one(me, difference):
    await me.call(store_request(FACT))
    assert CREATED == (await me.call(store_request(**{"content": FACT, **difference}))).result


@pytest.mark.parametrize(
    "difference",
    [
        {"tags": ["new"]},
        {"confidence": 0.1},
        {"context": "Somebody asked."},
        {"key": "staging"},
        {"collection": "ops"},
        {"provenance": Origin(agent="claude")},
        {"card": Card(gotchas=["Backups are wiped too."])},
    ],
)
async def test_a_fact_that_says_the_same_with_other_labels_is_unchanged(me, difference):
    first = await me.call(store_request(FACT, card=Card(outcome=OUTCOME_SUCCESS)))
    second = await me.call(store_request(FACT, **difference))
    assert (UNCHANGED, first.memory) == (second.result, second.memory)


async def test_what_others_own_is_no_duplicate(here, me):
    other = await here.caller("other")
    mine = await me.call(store_request(FACT, scope=memory_pb2.SCOPE_TEAM))
    theirs = await other.call(store_request(FACT, scope=memory_pb2.SCOPE_TEAM))
    assert (CREATED, CREATED) == (mine.result, theirs.result)


@pytest.mark.parametrize("ending", ["delete", "supersede"])
async def test_what_is_no_longer_active_is_no_duplicate(me, ending):
    first = await me.store(FACT)
    if ending == "delete":
        await me.client.delete(first.id)
    else:
        await me.client.supersede(first.id, "The staging database is never wiped.")
    again = await me.call(store_request(FACT))
    assert CREATED == again.result
    assert first.id != again.memory.id


async def test_a_repeated_request_gets_the_first_answer_even_after_the_memory_moved_on(me):
    request = store_request(FACT, request_id=str(uuid4()))
    first = await me.call(request)
    await me.client.update(first.memory.id, content="The staging database is wiped every Friday.")
    again = await me.call(request)
    assert (CREATED, 1, FACT) == (again.result, again.memory.revision, again.memory.content)
    assert (first.memory.id, first.memory.etag) == (again.memory.id, again.memory.etag)
    assert 2 == (await me.client.get(first.memory.id)).revision


async def test_a_repeated_request_that_found_an_equal_fact_stays_unchanged(me):
    original = await me.store(FACT)
    request = store_request(FACT, request_id=str(uuid4()))
    assert UNCHANGED == (await me.call(request)).result
    await me.client.delete(original.id)
    again = await me.call(request)
    assert (UNCHANGED, original.id, 1) == (again.result, again.memory.id, again.memory.revision)


async def test_a_request_id_counts_in_every_spelling_of_one_uuid(me):
    identity = uuid4()
    options = {"on_duplicate": KEEP_BOTH}
    spellings = [str(identity), str(identity).upper(), identity.hex, f"{{{identity}}}", f"urn:uuid:{identity}"]
    ids = {(await me.call(store_request(FACT, request_id=s, **options))).memory.id for s in spellings}
    assert 1 == len(ids)


async def test_a_request_id_is_its_callers_own(here, me):
    other = await here.caller("other")
    request = store_request(FACT, request_id=str(uuid4()))
    mine, theirs = await me.call(request), await other.call(request)
    assert (CREATED, CREATED) == (mine.result, theirs.result)
    assert mine.memory.id != theirs.memory.id


async def test_a_request_id_is_forgotten_after_a_day(me, time):
    request = store_request(FACT, request_id=str(uuid4()), on_duplicate=KEEP_BOTH)
    first = await me.call(request)
    time.advance(hours=23)
    assert first.memory.id == (await me.call(request)).memory.id
    time.advance(hours=1, seconds=1)
    later = await me.call(request)
    assert first.memory.id != later.memory.id
    assert later.memory.id == (await me.call(request)).memory.id


async def test_a_failed_request_leaves_its_id_free(me):
    request_id = str(uuid4())
    await me.refused(store_request("x", request_id=request_id))
    assert CREATED == (await me.call(store_request(FACT, request_id=request_id))).result


async def test_a_rehearsal_answers_in_full_and_writes_nothing(here, me):
    target = await me.store("The staging database belongs to Maren.")
    before = {table: await here.rows(table) for table in TABLES}
    link = store_pb2.StoreRequest.Link(type="about", target=target.id)
    request = store_request(FACT, tags=["Staging"], key="k", links=[link], validate_only=True, request_id=str(uuid4()))
    rehearsed = await me.call(request)
    assert CREATED == rehearsed.result
    assert (FACT, ["staging"], 1, memory_pb2.STATE_ACTIVE, "tester") == (
        rehearsed.memory.content,
        list(rehearsed.memory.tags),
        rehearsed.memory.revision,
        rehearsed.memory.state,
        rehearsed.memory.owner,
    )
    assert before == {table: await here.rows(table) for table in TABLES}
    assert grpc.StatusCode.NOT_FOUND == await _code(me.client.get(rehearsed.memory.id))


async def test_a_rehearsal_fails_as_storing_would(me):
    holder = await me.store(FACT, key="taken")
    taken = await me.refused(store_request("Another fact.", key="taken", validate_only=True))
    assert ("KEY_TAKEN", holder.id) == (taken.reason, taken.metadata["id"])
    link = store_pb2.StoreRequest.Link(type="about", target="zzzzzzzz")
    assert (
        "MEMORY_NOT_FOUND"
        == (await me.refused(store_request(FACT, links=[link], on_duplicate=KEEP_BOTH, validate_only=True))).reason
    )
    unchanged = await me.call(store_request(FACT, validate_only=True))
    assert (UNCHANGED, holder.id) == (unchanged.result, unchanged.memory.id)


async def _code(call):
    try:
        await call
    except Exception as error:  # noqa: BLE001 - whatever it is, it has no code
        return getattr(error, "code", None)
    return None


async def test_ids_are_short_and_unique_and_uids_are_in_order_of_time(me):
    stored = [await me.store(f"Fact number {number}.") for number in range(20)]
    assert all(is_short_id(memory.id) for memory in stored)
    assert 20 == len({memory.id for memory in stored})
    assert {7} == {UUID(memory.uid).version for memory in stored}
    assert sorted(memory.uid for memory in stored) == [memory.uid for memory in stored]


async def test_what_the_author_leaves_out_gets_its_default(me, time):
    stored = await me.store(FACT)
    assert (
        memory_pb2.SCOPE_USER,
        memory_pb2.KIND_SEMANTIC,
        memory_pb2.POLARITY_POSITIVE,
        memory_pb2.STATE_ACTIVE,
        0.8,
        False,
        1,
        "tester",
    ) == (
        stored.scope,
        stored.kind,
        stored.polarity,
        stored.state,
        stored.confidence,
        stored.HasField("utility"),
        stored.revision,
        stored.owner,
    )
    assert time() == stored.create_time.ToDatetime(tzinfo=UTC) == stored.update_time.ToDatetime(tzinfo=UTC)
    assert (0.7, 0.7, 1.0, False, "bayes-v2") == (
        stored.quality.reputation,
        stored.quality.strength,
        stored.quality.retention,
        stored.quality.stale,
        stored.quality.policy,
    )


@pytest.mark.parametrize(
    ("origin", "confidence"),
    [
        (Origin.ORIGIN_EXPLICIT, 1.0),
        (Origin.ORIGIN_CORRECTED, 0.9),
        (Origin.ORIGIN_INFERRED, 0.7),
        (Origin.ORIGIN_OBSERVED, 0.8),
        (Origin.ORIGIN_IMPORTED, 0.8),
    ],
)
async def test_confidence_follows_the_origin(me, origin, confidence):
    assert confidence == (await me.store(FACT, provenance=Origin(origin=origin))).confidence


@pytest.mark.parametrize(
    ("category", "full", "kind"),
    [
        ("instruction", "agent-memory/instruction", memory_pb2.KIND_PROCEDURAL),
        ("person", "personal/person", memory_pb2.KIND_SEMANTIC),
        ("preference", "agent-memory/preference", memory_pb2.KIND_SEMANTIC),
        ("personal/preference", "personal/preference", memory_pb2.KIND_SEMANTIC),
        ("swarm/procedural", "swarm/procedural", memory_pb2.KIND_PROCEDURAL),
    ],
)
async def test_a_category_is_completed_and_gives_the_kind(me, category, full, kind):
    stored = await me.store(FACT, category=category)
    assert (full, kind) == (stored.category, stored.kind)
    told = await me.store(FACT, category=category, kind="episodic")
    assert memory_pb2.KIND_EPISODIC == told.kind


async def test_tags_and_keywords_are_folded_and_kept_once_in_order(me):
    stored = await me.store(
        FACT, tags=[" Über ", "U\u0308BER", "staging", "STAGING", "ж"], keywords=["Wipe", "Wipe", " reset ", " "]
    )
    assert ["über", "staging", "ж"] == list(stored.tags)
    assert ["Wipe", "reset"] == list(stored.keywords)


@pytest.mark.parametrize(
    "content",
    [
        "   Leading blanks and trailing ones.   ",
        "Lines\n\n\tand tabs\r\nin it.",
        "Family: 👨‍👩‍👧‍👦 and flag 🏳️‍🌈.",
        "שלום, עולם. مرحبا بالعالم.",
        "Combining: e\u0301 is not é; zero\u200bwidth; \u202eright to left\u202c.",
        "Quotes ' \" ` and \\ and %s {0} ${HOME} <b>&amp;</b>;",
        "\ufeffA byte order mark comes first.",
        "\u0001Control \u001f characters \u007f too.",
        "中文内容也可以存储。",
    ],
)
async def test_content_comes_back_as_it_was_given(me, content):
    stored = await me.store(content)
    (found,) = (await me.find(content)).hits
    (listed,) = [memory async for memory in me.client.list()]
    read = await me.client.get(stored.id)
    assert [content] * 4 == [stored.content, found.memory.content, listed.content, read.content]


async def test_everything_said_of_a_memory_comes_back(me):
    said = memory_pb2.Memory(
        content=FACT,
        title="Staging",
        card=Card(
            summary="Wiped weekly.",
            when_to_use=["Before a demo."],
            how_to_apply=["Export first."],
            gotchas=["Backups go too."],
            evidence=[{"text": "cron", "uri": "https://x", "digest": "d", "observe_time": Timestamp(seconds=5)}],
            outcome=OUTCOME_SUCCESS,
            anti_pattern="Relying on staging.",
            triage={"symptoms": ["Empty tables."], "fix_steps": ["Seed again."]},
            signals=["cron log"],
            invariants=["Mondays"],
        ),
        context="Asked twice.",
        keywords=["reset"],
        kind=memory_pb2.KIND_EPISODIC,
        polarity=memory_pb2.POLARITY_NEGATIVE,
        category="agent-memory/fact",
        collection="ops/staging",
        subject="staging",
        tags=["db"],
        scope=memory_pb2.SCOPE_TEAM,
        project="shop",
        key="staging",
        applicability=provenance_pb2.Applicability(repo="shop", versions=["1"], environment={"os": "linux"}),
        provenance=Origin(
            origin=Origin.ORIGIN_OBSERVED,
            author=Origin.AUTHOR_AGENT,
            agent="a",
            run="r",
            conversation="c",
            sources=["s"],
        ),
        confidence=0.25,
        utility=0.5,
        pinned=True,
        valid_from=Timestamp(seconds=1_700_000_000, nanos=123_456_000),
        valid_until=Timestamp(seconds=4_000_000_000),
    )
    said.attributes.update({"n": 1.5, "list": [1, "a", None, {"b": True}]})
    stored = await me.store(memory=said)
    read = await me.client.get(stored.id)
    assert stored == read
    for field, value in said.ListFields():
        if field.name != "applicability":
            assert value == getattr(read, field.name), field.name
    read.applicability.ClearField("fingerprint")
    assert said.applicability == read.applicability


async def test_a_link_is_stored_with_its_memory(me):
    target = await me.store("Maren owns the staging database.")
    link = store_pb2.StoreRequest.Link(type="about", target=target.id, strength=0.4, context="why")
    stored = await me.store(FACT, links=[link, ("related_to", target.id)])
    graph = await me.client.graph(stored.id)
    assert [("about", 0.4, "why"), ("related_to", 1.0, "")] == [(e.type, e.strength, e.context) for e in graph.edges]


async def test_quality_none_keeps_every_memory_at_full_strength(open_space, time):
    me = await (await open_space(quality_policy="none")).caller("tester")
    stored = await me.store(FACT)
    time.advance(days=4000)
    read = await me.client.get(stored.id)
    assert (1.0, 1.0, False, "none") == (
        read.quality.strength,
        read.quality.retention,
        read.quality.stale,
        read.quality.policy,
    )
    assert [stored.id] == await me.found("staging")
