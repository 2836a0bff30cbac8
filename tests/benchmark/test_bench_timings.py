"""From spans to percentiles."""

import random

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lorebank_server.bench.otlp_receiver import receiving
from lorebank_server.bench.timings import FIND, OUTSIDE, Distribution, distribution, find_timings

TRACE = b"t" * 16


def span(name: str, begin_ms: float, end_ms: float, *, trace: bytes = TRACE, number: int = 0) -> Span:
    return Span(
        trace_id=trace,
        span_id=f"{name}{number}".encode()[-8:],
        name=name,
        start_time_unix_nano=int(begin_ms * 1e6),
        end_time_unix_nano=int(end_ms * 1e6),
    )


def find(*, trace: bytes = TRACE, begin_ms: float = 0, ms: float = 50) -> list[Span]:
    return [
        span("lorebank.embed", begin_ms, begin_ms + 10, trace=trace),
        span("lorebank.lexical", begin_ms + 5, begin_ms + 20, trace=trace),
        span("lorebank.confirm", begin_ms + 20, begin_ms + 24, trace=trace, number=1),
        span("lorebank.confirm", begin_ms + 30, begin_ms + 33, trace=trace, number=2),
        span("lorebank.dense", begin_ms + 10, begin_ms + 25, trace=trace),
        span("lorebank.rank", begin_ms + 33, begin_ms + 34, trace=trace),
        span(FIND, begin_ms, begin_ms + ms, trace=trace),
    ]


def test_percentiles_are_the_least_values_that_so_many_do_not_exceed():
    values = [float(number) for number in range(1, 101)]
    random.Random(1).shuffle(values)
    found = distribution("some", values)
    assert (100, 50.0, 95.0, 99.0) == (found.count, found.p50, found.p95, found.p99)


def test_percentiles_of_few_values_are_among_them():
    found = distribution("some", [3.0, 1.0, 2.0])
    assert (2.0, 3.0, 3.0) == (found.p50, found.p95, found.p99)


def test_percentiles_of_nothing_are_nothing():
    assert Distribution("none", 0, 0.0, 0.0, 0.0) == distribution("none", [])


def test_a_call_is_put_together_from_its_spans():
    found = find_timings(find(), [TRACE])
    stages = {stage.name: stage.p50 for stage in found.stages}
    assert 1 == found.complete
    assert 50.0 == found.rpc.p50
    # Twice in one call: the sum. Overlapping: what no stage covers is 25 to 30 and 34 to 50.
    assert {"embed": 10, "lexical": 15, "dense": 15, "confirm": 7, "rank": 1, OUTSIDE: 21} == pytest.approx(stages)
    assert ["embed", "lexical", "dense", "confirm", "rank", OUTSIDE] == [stage.name for stage in found.stages]


def test_a_span_that_was_sent_twice_counts_once():
    found = find_timings([*find(), *find()], [TRACE])
    assert find_timings(find(), [TRACE]) == found


def test_the_spans_of_other_calls_do_not_count():
    found = find_timings([*find(), *find(trace=b"o" * 16, ms=900)], [TRACE])
    assert (1, 50.0) == (found.complete, found.rpc.p99)


@pytest.mark.parametrize("lost", [FIND, "lorebank.embed", "lorebank.dense", "lorebank.rank"])
def test_a_call_that_lost_a_span_is_not_complete(lost):
    spans = [each for each in find() if each.name != lost]
    found = find_timings(spans, [TRACE])
    assert (0, 0) == (found.complete, found.rpc.count)


async def test_the_receiver_keeps_spans_and_takes_what_is_no_span():
    request = trace_service_pb2.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "a server"
    resource.scope_spans.add().spans.extend(find())
    async with receiving() as receiver, grpc.aio.insecure_channel(receiver.endpoint.removeprefix("http://")) as channel:
        stub = trace_service_pb2_grpc.TraceServiceStub(channel)
        for _ in range(2):
            await stub.Export(request)
        metrics = channel.unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
        assert b"" == await metrics(b"")
        assert [*find(), *find()] == receiver.spans()
        assert 2 == len(receiver.named(FIND))
        assert {"service.name": "a server"} == receiver.resources()[0]
        assert "lorebank.embed" in receiver.text()
        receiver.clear()
        assert [] == receiver.spans()


async def test_a_port_that_is_taken_is_refused():
    async with receiving() as first:
        with pytest.raises(RuntimeError):
            async with receiving(f"127.0.0.1:{first.port}"):
                pass
