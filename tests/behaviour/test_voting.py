"""Vote: what memories were worth, counted exactly, and by no one voter alone."""

import asyncio
from uuid import uuid4

import grpc
import pytest

from lorebank import Ballot, LorebankError
from lorebank.v1 import memory_pb2
from lorebank.v1.vote_pb2 import VoteRequest

CITE, UPVOTE, DOWNVOTE, RETRACT = (
    VoteRequest.SIGNAL_CITE,
    VoteRequest.SIGNAL_UPVOTE,
    VoteRequest.SIGNAL_DOWNVOTE,
    VoteRequest.SIGNAL_RETRACT,
)
FACT = "The staging database is wiped every Monday."


def counts(memory):
    quality = memory.quality
    return quality.upvotes, quality.downvotes, quality.citations


async def vote(me, memory, signal, run=""):
    return (await me.client.vote([Ballot(id=memory.id, signal=signal)], run=run)).memories[0]


async def failure(attempt):
    with pytest.raises(LorebankError) as caught:
        await attempt
    return caught.value


@pytest.mark.parametrize(
    ("signals", "expected", "reputation"),
    [
        ([UPVOTE], (1, 0, 0), 1.7 / 2.3),
        ([DOWNVOTE], (0, 1, 0), 1.4 / 2.3),
        ([CITE], (0, 0, 1), 0.7),
        ([UPVOTE, UPVOTE], (1, 0, 0), 1.7 / 2.3),
        ([UPVOTE, DOWNVOTE], (0, 1, 0), 1.4 / 2.3),
        ([DOWNVOTE, UPVOTE], (1, 0, 0), 1.7 / 2.3),
        ([CITE, UPVOTE], (1, 0, 1), 1.7 / 2.3),
        ([CITE, DOWNVOTE, UPVOTE, CITE], (1, 0, 1), 1.7 / 2.3),
        ([UPVOTE, CITE, RETRACT], (0, 0, 0), 0.7),
        ([RETRACT], (0, 0, 0), 0.7),
        ([RETRACT, UPVOTE], (1, 0, 0), 1.7 / 2.3),
    ],
)
async def test_signals_of_one_run_add_up_to_one_opinion(me, signals, expected, reputation):
    one_by_one, at_once = await me.store(FACT), await me.store("Another fact.")
    for signal in signals:
        last = await vote(me, one_by_one, signal, run="run")
    (together,) = (
        await me.client.vote([Ballot(id=at_once.id, signal=signal) for signal in signals], run="run")
    ).memories
    for memory in (last, together):
        assert expected == counts(memory)
        assert reputation == pytest.approx(memory.quality.reputation)
        assert reputation == pytest.approx(memory.quality.strength)
        assert memory == await me.client.get(memory.id)
        assert 1 == memory.revision


async def test_runs_are_counted_apart_and_retracted_apart(me):
    stored = await me.store(FACT)
    for run, signal in (("a", UPVOTE), ("b", UPVOTE), ("c", DOWNVOTE), ("", UPVOTE)):
        last = await vote(me, stored, signal, run=run)
    assert (3, 1, 0) == counts(last)
    assert (2, 1, 0) == counts(await vote(me, stored, RETRACT, run="a"))
    assert (2, 1, 0) == counts(await vote(me, stored, RETRACT, run="unheard of"))
    assert (3, 0, 0) == counts(await vote(me, stored, UPVOTE, run="c"))


async def test_answers_come_once_each_in_the_order_of_the_ballots(me):
    first, second, third = [await me.store(f"Fact number {n}.") for n in range(3)]
    ballots = [Ballot(id=m.id, signal=s) for m, s in ((third, CITE), (first, UPVOTE), (third, UPVOTE), (second, CITE))]
    answer = await me.client.vote(ballots, run="run")
    assert [(third.id, (1, 0, 1)), (first.id, (1, 0, 0)), (second.id, (0, 0, 1))] == [
        (memory.id, counts(memory)) for memory in answer.memories
    ]


async def test_one_bad_ballot_and_none_is_cast(here, me):
    good, gone, old = await me.store(FACT), await me.store("A fact that is gone."), await me.store("An old fact.")
    await me.client.delete(gone.id)
    new = (await me.client.supersede(old.id, "A new fact.")).memory
    error = await failure(me.client.upvote(good.id, "zzzzzzzz"))
    assert (grpc.StatusCode.NOT_FOUND, "zzzzzzzz") == (error.code, error.metadata["id"])
    error = await failure(me.client.upvote(good.id, gone.id))
    assert (grpc.StatusCode.FAILED_PRECONDITION, "NOT_ACTIVE", gone.id) == (
        error.code,
        error.reason,
        error.preconditions[0].subject,
    )
    error = await failure(me.client.upvote(good.id, old.id))
    assert (grpc.StatusCode.FAILED_PRECONDITION, "SUPERSEDED", new.id) == (
        error.code,
        error.reason,
        error.metadata["superseded_by"],
    )
    assert ((0, 0, 0), 0) == (counts(await me.client.get(good.id)), await here.rows("ballots"))


async def test_a_vote_on_what_is_gone_can_still_be_retracted(me):
    stored = await me.store(FACT)
    await me.client.upvote(stored.id)
    await me.client.delete(stored.id)
    assert (0, 0, 0) == counts(await vote(me, stored, RETRACT))


async def test_a_repeated_request_writes_nothing(here, me):
    stored = await me.store(FACT)
    request_id = str(uuid4())
    ballots = [Ballot(id=stored.id, signal=UPVOTE)]
    await me.client.vote(ballots, run="run", request_id=request_id)
    await me.client.retract(stored.id, run="run")
    again = await me.client.vote(ballots, run="run", request_id=request_id)
    assert [(stored.id, (0, 0, 0))] == [(memory.id, counts(memory)) for memory in again.memories]
    assert 0 == await here.rows("ballots")


async def test_voters_at_once_are_counted_exactly(here, me):
    stored = await me.store(FACT, scope="team")
    voters = [await here.caller(f"voter-{n}") for n in range(8)]
    voters = [await here.another_connection(voter) for voter in voters]

    async def say(number):
        for run in range(3):
            await voters[number].client.cite(stored.id, run=f"run-{run}")
        await voters[number].client.downvote(stored.id, run="run-0")
        await voters[number].client.upvote(stored.id, run="run-0")

    await asyncio.gather(*map(say, range(8)))
    now = await me.client.get(stored.id)
    assert (8, 0, 24) == counts(now)
    assert (1.4 + 8 * 0.3) / (2 + 8 * 0.3) == pytest.approx(now.quality.reputation)
    assert 32 == await here.rows("ballots")


async def test_votes_on_many_memories_at_once_in_any_order_do_not_hang(here, me):
    stored = [await me.store(f"Fact number {n}.", scope="team") for n in range(6)]
    voters = [await here.another_connection(await here.caller(f"voter-{n}")) for n in range(6)]
    await asyncio.gather(
        *[
            voter.client.upvote(*[stored[(n + step) % 6].id for step in range(6)][:: 1 - n % 2 * 2])
            for n, voter in enumerate(voters)
        ]
    )
    assert [(6, 0, 0)] * 6 == [counts(await me.client.get(memory.id)) for memory in stored]


async def test_no_one_voter_outweighs_several(here, me):
    loud, steady = await me.store(FACT, scope="team"), await me.store("Another fact.", scope="team")
    for run in range(20):
        await me.client.upvote(loud.id, run=f"run-{run}")
        if run == 1:
            bound = (await me.client.get(loud.id)).quality.reputation
    for number in range(3):
        await (await here.caller(f"voter-{number}")).client.upvote(steady.id)
    loud, steady = await me.client.get(loud.id), await me.client.get(steady.id)
    assert 20 == loud.quality.upvotes
    assert 2.0 / 2.6 == pytest.approx(loud.quality.reputation) == pytest.approx(bound)
    assert loud.quality.reputation < steady.quality.reputation


async def test_votes_of_one_owner_count_together_whatever_the_key(here):
    one, two = await here.caller("twin"), await here.caller("twin")
    stored = await one.store(FACT, scope="team")
    await one.client.upvote(stored.id)
    assert (1, 0, 0) == counts((await two.client.upvote(stored.id)).memories[0])


async def test_anyone_who_sees_a_memory_may_vote_on_it_and_readers_may_not(here, me):
    everybody = await me.store(FACT, scope="global")
    writer, reader = await here.caller("writer"), await here.caller("reader", role="reader")
    assert (1, 0, 0) == counts((await writer.client.upvote(everybody.id)).memories[0])
    assert "ROLE_REQUIRED" == (await failure(reader.client.upvote(everybody.id))).reason


async def test_a_memory_voted_below_the_threshold_goes_stale_and_comes_back(open_space):
    me = await (await open_space(stale_threshold=0.6)).caller("tester")
    stored = await me.store(FACT)
    assert [stored.id] == await me.found("staging")
    await me.client.downvote(stored.id, run="a")
    await me.client.downvote(stored.id, run="b")
    for mode in ("hybrid", "semantic", "lexical"):
        assert [] == await me.found("staging", mode=mode)
    assert [] == await me.listed()
    assert (await me.client.get(stored.id)).quality.stale
    await me.client.retract(stored.id, run="a")
    for mode in ("hybrid", "semantic", "lexical"):
        assert [stored.id] == await me.found("staging", mode=mode)


async def test_votes_move_rank(me):
    first, second = await me.store("The canary sings at dawn."), await me.store("The canary sings at dusk.")
    await me.client.upvote(second.id)
    assert [second.id, first.id] == await me.found("canary sings", mode="lexical")
    await me.client.downvote(second.id)
    assert [first.id, second.id] == await me.found("canary sings", mode="lexical")


async def test_without_quality_votes_are_counted_and_change_nothing(open_space):
    me = await (await open_space(quality_policy="none")).caller("tester")
    stored = await me.store(FACT)
    voted = await vote(me, stored, DOWNVOTE)
    assert ((0, 1, 0), 1.0, 1.0) == (counts(voted), voted.quality.reputation, voted.quality.strength)
    assert memory_pb2.STATE_ACTIVE == voted.state
