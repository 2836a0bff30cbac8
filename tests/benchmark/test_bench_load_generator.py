"""The open loop: who is due is sent, and who waits has waited since he was due."""

import asyncio
from itertools import count, pairwise
from statistics import mean, pstdev

import grpc
import pytest

from lorebank.v1 import find_pb2, memory_service_pb2_grpc
from lorebank_server.bench.load_generator import Target, load_generator, poisson_arrivals

SERVICE_TIME_S = 0.05


class SlowMemories(memory_service_pb2_grpc.MemoryServiceServicer):
    """Answers every Find after the same time, and notes what came with it."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.metadata: list[dict[str, str]] = []
        self.peers: set[str] = set()
        self.under_way = 0
        self.most_under_way = 0

    async def Find(self, request, context):  # noqa: N802 - as the contract names it
        self.queries.append(request.query)
        self.metadata.append(dict(context.invocation_metadata()))
        self.peers.add(context.peer())
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(SERVICE_TIME_S)
        self.under_way -= 1
        if request.query == "query 2":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
        return find_pb2.FindResponse(hits=[find_pb2.FindResponse.Hit()], degraded=["a leg is missing"])


@pytest.fixture
async def slow():
    memories, server = SlowMemories(), grpc.aio.server()
    memory_service_pb2_grpc.add_MemoryServiceServicer_to_server(memories, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield memories, Target(f"127.0.0.1:{port}", api_key="a-key", channels=3)
    await server.stop(None)


def numbered():
    return (f"query {number}" for number in count())


def test_arrivals_are_the_same_for_a_seed():
    assert poisson_arrivals(50, 4, seed=1) == poisson_arrivals(50, 4, seed=1)
    assert poisson_arrivals(50, 4, seed=1) != poisson_arrivals(50, 4, seed=2)


def test_arrivals_are_those_of_a_poisson_process():
    arrivals = poisson_arrivals(100, 200, seed=1)
    gaps = [after - before for before, after in pairwise(arrivals)]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] < 200
    assert pytest.approx(20_000, rel=0.03) == len(arrivals)
    # Of an exponential distribution, mean and standard deviation are the same.
    assert pytest.approx(0.01, rel=0.03) == mean(gaps)
    assert pytest.approx(0.01, rel=0.05) == pstdev(gaps)


async def test_waiting_for_a_free_place_counts_as_latency(slow):
    memories, target = slow
    async with load_generator(target, seed=1) as generator:
        calls = await generator.run(numbered(), [0.0] * 6, concurrency=1)
    assert 1 == memories.most_under_way
    for number, call in enumerate(calls, start=1):
        assert call.latency_ms >= number * SERVICE_TIME_S * 1000
        assert call.sent - call.due >= (number - 1) * SERVICE_TIME_S


async def test_calls_do_not_wait_for_each_other_below_the_limit(slow):
    memories, target = slow
    async with load_generator(target, seed=1) as generator:
        await generator.run(numbered(), [0.0] * 6, concurrency=6)
    assert memories.most_under_way > 1


async def test_calls_are_reported_in_order_with_what_became_of_them(slow):
    memories, target = slow
    async with load_generator(target, seed=1) as generator:
        calls = await generator.run(numbered(), [0.0, 0.01, 0.02, 0.03], concurrency=4)
    assert ["OK", "OK", "RESOURCE_EXHAUSTED", "OK"] == [call.code for call in calls]
    assert [True, True, False, True] == [call.degraded for call in calls]
    assert [1, 1, 0, 1] == [call.hits for call in calls]
    assert 4 == len(set(memories.queries))


async def test_every_call_names_its_trace_and_the_connections_take_turns(slow):
    memories, target = slow
    async with load_generator(target, seed=1) as generator:
        calls = await generator.run(numbered(), [0.0] * 6, concurrency=6)
    sent = {metadata["traceparent"].split("-")[1] for metadata in memories.metadata}
    assert sent == {call.trace_id.hex() for call in calls}
    assert {"01"} == {metadata["traceparent"].split("-")[3] for metadata in memories.metadata}
    assert {"Bearer a-key"} == {metadata["authorization"] for metadata in memories.metadata}
    assert 3 == len(memories.peers)
