"""Find: what is recalled, in which order, and why."""

from datetime import timedelta

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spaces_apart import outcome, store_request

from lorebank import LorebankError
from lorebank.v1 import find_pb2, on_duplicate_pb2, store_pb2
from lorebank.v1.card_pb2 import Card

MODES = {"hybrid": (0.4, 0.6), "semantic": (1.0, 0.0), "lexical": (0.0, 1.0)}
TOPICS = ("staging database", "peppermint tea", "release train", "zebra exporter", "night shift", "coffee machine")
VERBS = ("is wiped on", "belongs to", "depends on", "was moved after", "is documented under", "breaks without")


async def fill(me, count=36):
    facts = [f"The {TOPICS[n % 6]} {VERBS[n // 6 % 6]} item {n}." for n in range(count)]
    answer = await me.call(store_pb2.BatchStoreRequest(requests=map(store_request, facts)))
    return [item.response.memory for item in answer.items]


@pytest.mark.parametrize("mode", MODES)
async def test_every_score_can_be_computed_again_from_its_parts(me, time, mode):
    stored = await fill(me)
    await me.client.upvote(stored[0].id, stored[6].id)
    await me.client.downvote(stored[12].id)
    time.advance(days=30)
    answer = await me.find("When is the staging database wiped?", mode=mode, limit=100)
    assert answer.hits
    dense_weight, lexical_weight = MODES[mode]
    for hit in answer.hits:
        parts = hit.parts
        dense = max(0.0, parts.similarity) / parts.max_similarity if parts.max_similarity else 0.0
        lexical = parts.lexical / parts.max_lexical if parts.max_lexical else 0.0
        fused = dense_weight * dense + lexical_weight * lexical
        assert fused == pytest.approx(parts.fused, abs=1e-9)
        assert parts.fused * (0.25 + 1.5 * parts.strength) * parts.applicability == pytest.approx(hit.score, abs=1e-9)
        assert parts.reputation * (0.25 + 0.75 * parts.retention) == pytest.approx(parts.strength, abs=1e-9)
        assert 0.5 ** (parts.age_days / 90) == pytest.approx(parts.retention, abs=1e-9)
        assert 30 == pytest.approx(parts.age_days)
        assert parts.strength == hit.memory.quality.strength
    scores = [hit.score for hit in answer.hits]
    assert sorted(scores, reverse=True) == scores
    assert (max(hit.parts.similarity for hit in answer.hits) if mode != "lexical" else 0.0) == pytest.approx(
        answer.hits[0].parts.max_similarity
    )


@pytest.mark.parametrize("mode", MODES)
async def test_the_first_k_of_a_hundred_are_the_answer_of_length_k(me, mode):
    await fill(me)
    query = "Who owns the staging database or the coffee machine?"
    longest = await me.found(query, mode=mode, limit=100)
    assert 10 < len(longest)
    for k in (1, 2, 5, 10, 17):
        assert longest[:k] == await me.found(query, mode=mode, limit=k)
    default = await me.call(find_pb2.FindRequest(query=query, mode=list(MODES).index(mode) + 1, skip_usage=True))
    assert longest[:10] == [hit.memory.id for hit in default.hits]


@pytest.mark.parametrize("mode", MODES)
async def test_ties_are_in_order_of_id(me, mode):
    request = store_request("The staging database is wiped.", on_duplicate=on_duplicate_pb2.ON_DUPLICATE_KEEP_BOTH)
    answer = await me.call(store_pb2.BatchStoreRequest(requests=[request] * 30))
    ids = sorted(item.response.memory.id for item in answer.items)
    found = await me.find("staging", mode=mode, limit=100)
    assert 1 == len({hit.score for hit in found.hits})
    assert ids == [hit.memory.id for hit in found.hits]
    assert ids[:7] == await me.found("staging", mode=mode, limit=7)


async def test_words_alone_and_meaning_alone_find_what_they_should(me):
    stored = await me.store("The cat Xanthippe sleeps on the warm sofa.")
    await fill(me, 12)
    assert [stored.id] == await me.found("xanthippe", mode="lexical")
    assert stored.id == (await me.found("where do kittens like to nap?", mode="semantic"))[0]
    assert stored.id == (await me.found("Xanthippe"))[0]
    assert [] == await me.found("continental philosophy", mode="lexical")


async def test_a_hit_names_the_words_that_it_contains(me):
    await me.store("The staging databases were wiped by Maren.")
    (hit,) = (await me.find("Who wipes the staging database on Friday?", mode="lexical")).hits
    assert ["databas", "stage", "wipe"] == list(hit.matched)


async def test_every_part_of_a_memory_that_says_something_is_searched(me):
    stored = await me.store(
        "The content says alpha.",
        title="Bravo",
        subject="charlie",
        keywords=["delta"],
        tags=["echo"],
        card=Card(summary="foxtrot", when_to_use=["golf"], triage={"symptoms": ["hotel"]}),
    )
    for word in ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "January 2026 alpha"):
        assert stored.id in await me.found(word, mode="lexical"), word


async def test_hits_below_the_least_similarity_are_withheld_and_counted(me):
    await fill(me)
    query = "Who owns the staging database?"
    everything = (await me.find(query, limit=100)).hits
    for threshold in (0.0, 0.2, 0.4, 0.6, 1.0):
        answer = await me.find(query, limit=100, min_similarity=threshold)
        expected = [hit.memory.id for hit in everything if hit.parts.similarity >= threshold]
        assert expected == [hit.memory.id for hit in answer.hits]
        assert len(everything) - len(expected) == answer.below_threshold
    assert 0 == (await me.find(query, limit=1)).below_threshold


async def test_likes_of_a_memory_leave_it_out(me):
    stored = await fill(me)
    origin = stored[0]
    for mode in MODES:
        found = await me.find(similar_to=origin.id, mode=mode, limit=100)
        ids = [hit.memory.id for hit in found.hits]
        assert origin.id not in ids
        assert ids[0] in {stored[n].id for n in range(0, 36, 6)}, "one of the same topic comes first"
    gone = await me.client.delete(origin.id)
    assert ids[0] in await me.found(similar_to=gone.id), "a deleted memory may still be an example"


async def test_only_what_is_active_is_found_unless_states_say_so(me):
    old = await me.store("The canary sings in the old mine.")
    new = (await me.client.supersede(old.id, "The canary sings in the new mine.")).memory
    gone = await me.store("The canary sings no more.")
    await me.client.delete(gone.id)
    for mode in MODES:
        assert [new.id] == await me.found("canary sings", mode=mode)
        assert [old.id] == await me.found("canary sings", mode=mode, states=["superseded"])
        assert {old.id, new.id, gone.id} == set(
            await me.found("canary sings", mode=mode, states=["active", "superseded", "deleted"])
        )


async def test_what_has_faded_is_hidden_until_asked_for(me, time):
    faded = await me.store("The canary sings in the mine.")
    kept = await me.store("The canary must sing.", category="preference")
    time.advance(days=252)
    for mode in MODES:
        assert {faded.id, kept.id} == set(await me.found("canary", mode=mode))
    time.advance(days=1)
    for mode in MODES:
        assert [kept.id] == await me.found("canary", mode=mode)
        assert {faded.id, kept.id} == set(await me.found("canary", mode=mode, include_stale=True))
    assert [kept.id] == await me.listed()
    assert (await me.client.get(faded.id)).quality.stale


async def test_what_no_longer_holds_is_hidden_from_the_moment_it_ends(me, time):
    ends = time() + timedelta(hours=1)
    stored = await me.store("The canary sale lasts an hour.", valid_until=ends)
    time.advance(minutes=59, seconds=59)
    for mode in MODES:
        assert [stored.id] == await me.found("canary", mode=mode)
    time.advance(seconds=1)
    for mode in MODES:
        assert [] == await me.found("canary", mode=mode)
        assert [] == await me.found("canary", mode=mode, include_stale=True)
    assert [stored.id] == await me.listed(), "a list says what is kept, not what holds"


async def test_use_is_counted_once_an_answer_and_orders_a_list(me, shared, time):
    first, second, third = [await me.store(f"The canary number {n} sings.") for n in range(3)]
    await me.client.find("canary", limit=100)
    time.advance(minutes=5)
    await me.client.find("canary", ids=[second.id, third.id])
    await me.client.find("canary", ids=[third.id])
    for _ in range(3):
        await me.client.find("canary", ids=[first.id], skip_usage=True)
    await shared.running.services.usage.flush()
    listed = [memory async for memory in me.client.list(order_by="use_count")]
    assert [(third.id, 3), (second.id, 2), (first.id, 1)] == [(m.id, m.usage.use_count) for m in listed]
    assert 300 == listed[0].usage.last_used_time.seconds - listed[2].usage.last_used_time.seconds
    ranked = (await me.find("canary", limit=100)).hits
    assert 1 == len({hit.parts.strength for hit in ranked}), "being recalled does not raise rank"


async def test_only_what_was_answered_counts_as_used(me, shared):
    await fill(me, 12)
    await me.client.find("staging database", limit=2)
    await shared.running.services.usage.flush()
    assert 2 == sum([memory.usage.use_count async for memory in me.client.list()])


HOSTILE = [
    "the of and is it",
    "?!.,;:-—",
    "' | & ! ( ) : * \\",
    "foo & | bar",
    "!!!",
    "a:*",
    "'; drop table memories; --",
    "\\' \\\\ \\x00",
    '"unbalanced (parentheses',
    "<-> <2> foo:A*B",
    "% _ %s {0} $1 ::text",
    "когда очищается стенд?",
    "每周一清空数据库",
    "😀🎉",
    "\u202e\u200b\ufeff",
    "a",
    "x" * 8192,
    "слово " * 1365,
    "wort " * 1638,
    " ".join(f"term{n}" for n in range(1000)),
    "1 2 3 4.5 -6 1e9 2026-01-15 12:00",
    "https://example.com/a?b=c&d=e#f user@example.com /etc/passwd C:\\x",
    "\t\n\r staging \x0b\x0c",
]


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
async def test_no_query_is_too_odd_to_be_answered(me, query):
    stored = await me.store("The staging database is wiped every Monday: стенд очищается.")
    for mode in MODES:
        answer = await me.find(query, mode=mode, limit=100)
        assert {hit.memory.id for hit in answer.hits} <= {stored.id}
        assert [] == list(answer.degraded)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=40))
async def test_any_text_is_answered_or_refused_for_being_blank(me, query):
    answer = await outcome(me.find(query))
    refused = isinstance(answer, LorebankError) and answer.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused == (not query.strip())
    assert refused or isinstance(answer, find_pb2.FindResponse)


async def test_in_an_empty_space_nothing_is_found_and_nothing_fails(me):
    for mode in MODES:
        answer = await me.find("anything at all", mode=mode)
        assert ([], 0, []) == (list(answer.hits), answer.below_threshold, list(answer.degraded))


async def test_times_are_in_answers_as_the_clock_has_them(me, time):
    stored = await me.store("The canary sings.")
    now = Timestamp()
    now.FromDatetime(time())
    assert now == stored.create_time == (await me.find("canary")).hits[0].memory.create_time
