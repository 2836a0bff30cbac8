"""Stores that race each other, and what is found right after a store was answered."""

import asyncio
from uuid import uuid4

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spaces_apart import outcome, store_request

from lorebank import LorebankError
from lorebank.v1 import memory_pb2, on_duplicate_pb2, store_pb2

CREATED, UNCHANGED = store_pb2.StoreResponse.RESULT_CREATED, store_pb2.StoreResponse.RESULT_UNCHANGED
FACT = "The staging database is wiped every Monday."
CLIENTS = 16


async def connections(here, me, count=CLIENTS):
    return [await here.another_connection(me) for _ in range(count)]


async def test_equal_stores_at_once_end_as_one_memory(here, me):
    callers = await connections(here, me)
    answers = await asyncio.gather(*[each.client.store(FACT) for each in callers])
    assert 1 == len({answer.memory.id for answer in answers})
    assert [CREATED] + [UNCHANGED] * (CLIENTS - 1) == sorted(answer.result for answer in answers)
    assert 1 == await here.rows("memories")


async def test_equal_stores_without_request_ids_end_as_one_memory(me):
    answers = await asyncio.gather(*[me.call(store_request(FACT)) for _ in range(CLIENTS)])
    assert 1 == len({answer.memory.id for answer in answers})
    assert 1 == sum(answer.result == CREATED for answer in answers)


@pytest.mark.parametrize("policy", [on_duplicate_pb2.ON_DUPLICATE_UNSPECIFIED, on_duplicate_pb2.ON_DUPLICATE_KEEP_BOTH])
async def test_one_request_sent_many_times_at_once_is_done_once_and_answered_alike(here, me, policy):
    callers = await connections(here, me)
    request_id = str(uuid4())
    answers = await asyncio.gather(
        *[each.client.store(FACT, request_id=request_id, on_duplicate=policy) for each in callers]
    )
    assert 1 == len({answer.SerializeToString(deterministic=True) for answer in answers})
    assert CREATED == answers[0].result
    assert (1, 1) == (await here.rows("memories"), await here.rows("answers"))


async def test_one_key_wanted_by_many_at_once_goes_to_one(here, me):
    callers = await connections(here, me)

    attempts = [outcome(each.client.store(f"Fact number {n}.", key="k")) for n, each in enumerate(callers)]
    outcomes = await asyncio.gather(*attempts)
    holder = (await me.client.get(key="k")).id
    assert [holder] == [each.memory.id for each in outcomes if not isinstance(each, LorebankError)]
    assert {("KEY_TAKEN", holder)} == {(e.reason, e.metadata["id"]) for e in outcomes if isinstance(e, LorebankError)}


async def test_different_stores_at_once_are_all_kept(here, me):
    callers = await connections(here, me, 8)
    answers = await asyncio.gather(
        *[each.client.store(f"Fact {n} of {k}.") for k, each in enumerate(callers) for n in range(4)]
    )
    assert {CREATED} == {answer.result for answer in answers}
    assert {answer.memory.id for answer in answers} == set(await me.listed())


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS)
async def test_what_a_store_acknowledged_the_next_find_finds(here, me, words):
    reader = await here.another_connection(me)
    content = f"{words} {uuid4().hex}"
    stored = (await me.call(store_request(content))).memory
    assert content == stored.content
    assert stored == await reader.client.get(stored.id)
    assert stored.id == (await reader.found(content, limit=1))[0]
    assert stored.id == (await reader.found(content, mode="lexical", limit=1))[0]
    assert stored.id in await reader.found(content, mode="semantic", limit=100)


async def test_what_many_writers_acknowledged_other_readers_find_at_once(here, me):
    writers, readers = await connections(here, me, 4), await connections(here, me, 4)

    async def write_then_read(number):
        word = f"w{uuid4().hex}"
        stored = await writers[number % 4].store(f"The canary of writer {number} sings {word}.", scope="team")
        assert [stored.id] == await readers[number % 4].found(word, mode="lexical")
        assert stored.id == (await readers[number % 4].found(f"who sings {word}?"))[0]
        assert memory_pb2.STATE_ACTIVE == (await readers[number % 4].client.get(stored.id)).state

    await asyncio.gather(*map(write_then_read, range(24)))


async def test_an_id_that_is_taken_is_drawn_again(me, monkeypatch):
    taken = await me.store(FACT)
    drawn = iter([taken.id, taken.id, "fresh001"])
    monkeypatch.setattr("lorebank_server.operations.writing.new_short_id", lambda: next(drawn))
    assert "fresh001" == (await me.store("Another fact.")).id


async def test_ids_that_are_all_taken_end_in_a_conflict_to_be_tried_again(here, me, monkeypatch):
    taken = await me.store(FACT)
    monkeypatch.setattr("lorebank_server.operations.writing.new_short_id", lambda: taken.id)
    error = await me.refused(store_request("Another fact."))
    assert (grpc.StatusCode.ABORTED, "WRITE_CONFLICT") == (error.code, error.reason)
    assert 1 == await here.rows("memories")
