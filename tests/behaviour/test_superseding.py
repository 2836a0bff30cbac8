"""Supersede: a new memory takes the place of old ones, which stay readable."""

import asyncio
from uuid import uuid4

import grpc
import pytest
from spaces_apart import outcome

from lorebank import LorebankError
from lorebank.v1 import memory_pb2, revision_pb2, store_pb2

OLD = "The staging database is wiped every Monday."
NEW = "The staging database is wiped every Friday."
ACTIVE, SUPERSEDED = memory_pb2.STATE_ACTIVE, memory_pb2.STATE_SUPERSEDED


async def failure(attempt):
    with pytest.raises(LorebankError) as caught:
        await attempt
    return caught.value


async def test_both_sides_name_each_other(me, time):
    old = await me.store(OLD)
    time.advance(hours=1)
    answer = await me.client.supersede(old.id, NEW, reason="It moved.")
    (replaced,) = answer.superseded
    assert (ACTIVE, 1, [old.id], "", NEW) == (
        answer.memory.state,
        answer.memory.revision,
        list(answer.memory.supersedes),
        answer.memory.superseded_by,
        answer.memory.content,
    )
    assert (old.id, SUPERSEDED, 2, answer.memory.id, OLD) == (
        replaced.id,
        replaced.state,
        replaced.revision,
        replaced.superseded_by,
        replaced.content,
    )
    assert (answer.memory, replaced) == (await me.client.get(answer.memory.id), await me.client.get(old.id))
    graph = await me.client.graph(answer.memory.id)
    assert [(answer.memory.id, "supersedes", old.id, 1.0, "It moved.")] == [
        (edge.source, edge.type, edge.target, edge.strength, edge.context) for edge in graph.edges
    ]


async def test_only_the_successor_is_found(me):
    old = await me.store(OLD)
    new = (await me.client.supersede(old.id, NEW)).memory
    for mode in ("hybrid", "semantic", "lexical"):
        assert [new.id] == await me.found("staging database", mode=mode)


async def test_what_the_successor_leaves_out_comes_from_the_first(me):
    first = await me.store(
        OLD,
        scope="team",
        project="shop",
        category="swarm/procedural",
        collection="ops",
        subject="staging",
        tags=["db"],
        title="Title",
        key="k",
        pinned=True,
    )
    second = await me.store("Staging belongs to Maren.", subject="other", scope="team")
    new = (await me.client.supersede([first.id, second.id], NEW)).memory
    assert (
        memory_pb2.SCOPE_TEAM,
        "shop",
        memory_pb2.KIND_PROCEDURAL,
        "swarm/procedural",
        "ops",
        "staging",
    ) == (new.scope, new.project, new.kind, new.category, new.collection, new.subject)
    assert ([], "", "", False) == (list(new.tags), new.title, new.key, new.pinned)


async def test_what_the_successor_says_counts(me):
    old = await me.store(OLD, kind="episodic", category="swarm/procedural", subject="staging", collection="ops")
    new = (
        await me.client.supersede(old.id, NEW, category="preference", subject="other", collection="tea", scope="team")
    ).memory
    assert ("agent-memory/preference", memory_pb2.KIND_SEMANTIC, "other", "tea", memory_pb2.SCOPE_TEAM) == (
        new.category,
        new.kind,
        new.subject,
        new.collection,
        new.scope,
    )


async def test_many_are_replaced_by_one(me):
    olds = [await me.store(f"Fact number {n} of many.") for n in range(5)]
    ids = [old.id for old in olds]
    answer = await me.client.supersede([*ids, ids[0]], "One fact instead of many.")
    assert sorted(ids) == list(answer.memory.supersedes)
    assert ids == [memory.id for memory in answer.superseded]
    assert {answer.memory.id} == {memory.superseded_by for memory in answer.superseded}
    assert [answer.memory.id] == await me.listed()


async def test_a_hundred_are_replaced_by_one(me):
    facts = [memory_pb2.Memory(content=f"Fact number {n} of many.") for n in range(100)]
    ids = [item.response.memory.id async for item in me.client.store_many(facts)]
    answer = await me.client.supersede(ids, "One fact instead of a hundred.")
    assert 100 == len(answer.superseded) == len(answer.memory.supersedes)


async def test_one_that_cannot_be_replaced_keeps_all_as_they_are(here, me):
    good, gone = await me.store(OLD), await me.store("A fact that is gone.")
    await me.client.delete(gone.id)
    error = await failure(me.client.supersede([good.id, gone.id], NEW))
    assert (grpc.StatusCode.FAILED_PRECONDITION, "NOT_ACTIVE", gone.id) == (
        error.code,
        error.reason,
        error.preconditions[0].subject,
    )
    error = await failure(me.client.supersede([good.id, "zzzzzzzz"], NEW))
    assert grpc.StatusCode.NOT_FOUND == error.code
    error = await failure(me.client.supersede([good.id], "x"))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "memory.content") == (error.code, error.violations[0].field)
    assert good == await me.client.get(good.id)
    assert 2 == await here.rows("memories")


async def test_what_is_superseded_names_its_successor(me):
    old = await me.store(OLD)
    new = (await me.client.supersede(old.id, NEW)).memory
    error = await failure(me.client.supersede(old.id, "Never wiped at all."))
    assert (grpc.StatusCode.FAILED_PRECONDITION, "SUPERSEDED", {"superseded_by": new.id}) == (
        error.code,
        error.reason,
        dict(error.metadata),
    )
    assert f"change {new.id} instead" in error.message


async def test_of_many_successors_at_once_exactly_one_wins(here, me):
    old = await me.store(OLD)
    callers = [await here.another_connection(me) for _ in range(16)]

    attempts = [outcome(c.client.supersede(old.id, f"Successor number {n}.")) for n, c in enumerate(callers)]
    outcomes = await asyncio.gather(*attempts)
    winner = (await me.client.get(old.id)).superseded_by
    assert [winner] == [each.memory.id for each in outcomes if not isinstance(each, LorebankError)]
    losers = [each for each in outcomes if isinstance(each, LorebankError)]
    assert {(grpc.StatusCode.FAILED_PRECONDITION, "SUPERSEDED", winner)} == {
        (loser.code, loser.reason, loser.metadata["superseded_by"]) for loser in losers
    }
    assert ([winner], 2) == (await me.listed(), await here.rows("memories"))


async def test_overlapping_sets_at_once_never_fork_or_hang(here, me):
    olds = [await me.store(f"Fact number {n} of many.") for n in range(6)]
    callers = [await here.another_connection(me) for _ in range(8)]

    def wanted(number):
        return [olds[(number + step) % 6].id for step in range(3)][:: 1 - number % 2 * 2]

    attempts = [outcome(c.client.supersede(wanted(n), f"Successor {n}.")) for n, c in enumerate(callers)]
    outcomes = await asyncio.gather(*attempts)
    winners = [each.memory for each in outcomes if not isinstance(each, LorebankError)]
    losers = [each for each in outcomes if isinstance(each, LorebankError)]
    assert {grpc.StatusCode.FAILED_PRECONDITION} == {loser.code for loser in losers}
    replaced = [old for winner in winners for old in winner.supersedes]
    assert 1 <= len(winners) <= 2
    assert len(set(replaced)) == len(replaced)


async def test_a_chain_leads_on_and_never_back(me):
    first = await me.store("Version number 0.")
    chain = [first.id]
    for number in range(1, 6):
        chain.append((await me.client.supersede(chain[-1], f"Version number {number}.")).memory.id)
    memories = (await me.client.get_many(chain)).memories
    assert [*chain[1:], ""] == [memory.superseded_by for memory in memories]
    assert [[], *([each] for each in chain[:-1])] == [list(memory.supersedes) for memory in memories]
    for number, memory_id in enumerate(chain[:-1]):
        error = await failure(me.client.supersede([chain[-1], memory_id], "Round and round."))
        assert chain[number + 1] == error.metadata["superseded_by"]
    assert [chain[-1]] == await me.listed()


async def test_a_repeated_request_gets_the_first_answer(here, me):
    old = await me.store(OLD)
    request = store_pb2.SupersedeRequest(ids=[old.id], memory=memory_pb2.Memory(content=NEW), request_id=str(uuid4()))
    first = await me.call(request)
    await me.client.update(first.memory.id, content="The staging database is never wiped.")
    again = await me.call(request)
    assert (first.memory.id, 1, NEW, [old.id]) == (
        again.memory.id,
        again.memory.revision,
        again.memory.content,
        [memory.id for memory in again.superseded],
    )
    assert 2 == await here.rows("memories")


async def test_one_request_sent_many_times_at_once_is_done_once(here, me):
    old = await me.store(OLD)
    callers = [await here.another_connection(me) for _ in range(8)]
    request_id = str(uuid4())
    answers = await asyncio.gather(*[c.client.supersede(old.id, NEW, request_id=request_id) for c in callers])
    assert 1 == len({answer.SerializeToString(deterministic=True) for answer in answers})
    assert 2 == await here.rows("memories")


async def test_a_successor_may_equal_what_it_replaces(me):
    old = await me.store(OLD)
    new = (await me.client.supersede(old.id, OLD)).memory
    assert (old.content_hash, [old.id]) == (new.content_hash, list(new.supersedes))


async def test_the_team_sees_who_replaced_what(here, me):
    old = await me.store(OLD, scope="team")
    other = await here.caller("other")
    answer = await other.client.supersede(old.id, NEW, reason="I know better.")
    assert ("other", "tester") == (answer.memory.owner, answer.superseded[0].owner)
    last = (await me.histories(old.id))[-1]
    assert (revision_pb2.Revision.CHANGE_SUPERSEDE, "other", "I know better.") == (last.change, last.actor, last.reason)
