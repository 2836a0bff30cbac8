"""Every dependency, away in every way, seen through every kind of call: what it does meanwhile, and that it heals."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial

import asyncpg
import grpc
import pytest
from fault_calls import BY_MEANING, CALLS, WRITTEN, Outcome, Subjects, attempt, prepare
from faulty_world import World, eventually
from tcp_proxy import Fault

from lorebank.v1 import find_pb2
from lorebank_server.operations.writing import NOT_EMBEDDED

DEADLINE_S = 2.0
ANSWERED_BY_THEN_S = DEADLINE_S + 1.0
"""A client ends a call at its deadline; how late it says so depends on the machine."""

SILENT = {Fault.SLOW, Fault.BLACK_HOLE}
DEGRADED = {"embedder": "embedder: ", "vector store": "vector index: "}
DEPENDENCIES = ("postgres", *DEGRADED)


@pytest.fixture(scope="module")
async def worlds(open_world):
    """Two servers: on Postgres alone, and with a vector store beside it. They live through all outages."""
    async with AsyncExitStack() as stack:
        alone = await stack.enter_async_context(open_world())
        beside = await stack.enter_async_context(open_world(qdrant=True))
        yield {"postgres": alone, "embedder": alone, "vector store": beside}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("dependency", DEPENDENCIES)
async def test_an_outage_from_its_beginning_to_its_end(worlds, dependency: str, fault: Fault):
    world, proxy = worlds[dependency], worlds[dependency].proxies[dependency]
    subjects = await prepare(world, f"{dependency} {fault}".replace(" ", "-"))

    await proxy.suffer(fault)
    # All at once: they share the connections of one server, as callers do.
    during = await _each(partial(attempt, world, subjects, deadline_s=DEADLINE_S))
    if dependency == "postgres":
        await eventually(partial(_does_not_serve, world))
    served = await world.serves()

    await proxy.heal()
    after = await _each(partial(_succeed, world, subjects))
    await eventually(world.serves)

    assert served == (dependency != "postgres")
    wrong = [
        (call, what)
        for call in CALLS
        for what in (
            *_wrong_meanwhile(call, during[call], dependency, fault),
            *_wrong_afterwards(call, during[call].answer, after[call]),
        )
    ]
    assert [] == wrong
    if dependency == "postgres":
        # However silent it is, there is time to say so.
        assert grpc.StatusCode.UNAVAILABLE in {outcome.error.code for outcome in during.values()}
    for words in (subjects.words(name) for names in WRITTEN.values() for name in names):
        assert 0.5 < await eventually(partial(_similarity, world, words))
        assert (words, 1) == (words, await _copies(world, words))


async def _each(make) -> dict:
    return dict(zip(CALLS, await asyncio.gather(*map(make, CALLS)), strict=True))


async def _does_not_serve(world: World) -> bool:
    return not await world.serves()


async def _succeed(world: World, subjects: Subjects, call: str):
    """The answer to a call, repeated until it is whole."""

    async def whole():
        outcome = await attempt(world, subjects, call, deadline_s=10.0)
        return outcome.answer if outcome.error is None and not _degraded(outcome) else None

    return await eventually(whole)


def _degraded(outcome: Outcome) -> list[str]:
    return list(getattr(outcome.answer, "degraded", ()))


def _wrong_meanwhile(call: str, outcome: Outcome, dependency: str, fault: Fault) -> Iterator[object]:
    if outcome.took_s > ANSWERED_BY_THEN_S:
        yield outcome.took_s
    if dependency == "postgres":
        yield from _other_than_unavailable(outcome, fault)
        return
    if outcome.error is not None:
        yield outcome.error
        return
    degraded = _degraded(outcome)
    if call not in BY_MEANING:
        yield from degraded
    elif len(degraded) != 1 or not degraded[0].startswith(DEGRADED[dependency]) or not outcome.answer.hits:
        yield outcome.answer
    expected = [NOT_EMBEDDED] if dependency == "embedder" else []
    stored = {"Store": [outcome.answer], "BatchStore": [i.response for i in getattr(outcome.answer, "items", ())]}
    for response in stored.get(call, ()):
        if expected != list(response.warnings):
            yield response


def _other_than_unavailable(outcome: Outcome, fault: Fault) -> Iterator[object]:
    error = outcome.error
    if error is None:
        yield outcome.answer
        return
    told = (error.code, error.reason, error.retry_delay_s)
    late = fault in SILENT and error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    if not late and told != (grpc.StatusCode.UNAVAILABLE, "STORAGE_UNAVAILABLE", 1.0):
        yield error


def _wrong_afterwards(call: str, during, after) -> Iterator[object]:
    """What was written meanwhile under a request id is what the same request answers later."""
    if during is None:
        return
    if call in {"Store", "Supersede", "UpdateMemory"} and during.memory.id != after.memory.id:
        yield after
    if call == "BatchStore" and _ids(during) != _ids(after):
        yield after


def _ids(answer) -> list[str]:
    return [item.response.memory.id for item in answer.items]


async def _similarity(world: World, words: str) -> float:
    """Cosine of a memory to its own words, or 0 as long as it has no vector that is searched."""
    request = find_pb2.FindRequest(query=words, mode=find_pb2.FindRequest.MODE_SEMANTIC, limit=100)
    answer = await world.call("Find", request)
    if answer.degraded:
        return 0.0
    return max((hit.parts.similarity for hit in answer.hits if hit.memory.content == words), default=0.0)


async def _copies(world: World, words: str) -> int:
    connection = await asyncpg.connect(world.dsn)
    try:
        return int(await connection.fetchval("select count(*) from memories where body ->> 'content' = $1", words))
    finally:
        await connection.close()
