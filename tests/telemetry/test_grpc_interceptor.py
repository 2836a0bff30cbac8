import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from lorebank_server.telemetry.grpc_interceptor import RPC_BUCKETS_S, TelemetryInterceptor

CHUNK = b"x" * 100_000


class Service:
    """Handlers of all four kinds; the request says how the call is to end."""

    def __init__(self):
        self.entered = asyncio.Event()
        self.seen = []

    async def _end(self, request, context):
        self.seen.append(trace.get_current_span().get_span_context())
        self.baggage = baggage.get_all()
        self.entered.set()
        if request == b"abort":
            await context.abort(grpc.StatusCode.NOT_FOUND, "the cat")
        if request == b"abort_internal":
            await context.abort(grpc.StatusCode.INTERNAL, "the cat")
        if request == b"set_code":
            context.set_code(grpc.StatusCode.ABORTED)
        if request == b"raise":
            raise ValueError("the cat")
        if request == b"hang":
            await asyncio.Event().wait()

    async def unary(self, request, context):
        await self._end(request, context)
        return b"the cat"

    async def generate(self, request, context):
        yield b"one"
        yield b"two"
        await self._end(request, context)
        while request == b"endless":
            yield CHUNK

    async def write(self, request, context):
        await context.write(b"one")
        await context.write(b"two")
        await self._end(request, context)

    async def collect(self, requests, context):
        last = b""
        async for request in requests:
            last = request
        await self._end(last, context)
        return last

    async def echo(self, requests, context):
        async for request in requests:
            yield request
            await self._end(request, context)

    def blocking(self, request, _context):
        return request

    def handlers(self):
        return {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Generate": grpc.unary_stream_rpc_method_handler(self.generate),
            "Write": grpc.unary_stream_rpc_method_handler(self.write),
            "Collect": grpc.stream_unary_rpc_method_handler(self.collect),
            "Echo": grpc.stream_stream_rpc_method_handler(self.echo),
            "Blocking": grpc.unary_unary_rpc_method_handler(self.blocking),
        }


class Recorder(InMemorySpanExporter):
    """Says when a span has ended, so that nobody has to sleep for it."""

    def __init__(self):
        super().__init__()
        self.ended = asyncio.Event()

    def export(self, spans):
        result = super().export(spans)
        self.ended.set()
        return result

    async def only(self):
        await asyncio.wait_for(self.ended.wait(), 10)
        (span,) = self.get_finished_spans()
        return span


@asynccontextmanager
async def serving(meters=None, sampler=None):
    service, recorder = Service(), Recorder()
    provider = TracerProvider(sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(recorder))
    service.interceptor = TelemetryInterceptor(provider, meters)
    server = grpc.aio.server(interceptors=[service.interceptor])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", service.handlers()),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel, service, recorder
    await server.stop(None)


def start(channel, method, request, **kwargs):
    """The call under way, of whatever kind."""
    path = f"/test.Service/{method}"
    if method in ("Unary", "Blocking", "Missing"):
        return channel.unary_unary(path)(request, **kwargs)
    if method == "Collect":
        return channel.stream_unary(path)(iter([request]), **kwargs)
    if method == "Echo":
        return channel.stream_stream(path)(iter([request]), **kwargs)
    return channel.unary_stream(path)(request, **kwargs)


async def finish(call):
    """Code of the call, and the responses up to its end."""
    responses = []
    try:
        if isinstance(call, grpc.aio.UnaryUnaryCall | grpc.aio.StreamUnaryCall):
            responses.append(await call)
        else:
            async for response in call:
                responses.append(response)  # noqa: PERF401 - what came before an error counts
    except grpc.aio.AioRpcError as error:
        return error.code(), responses
    return grpc.StatusCode.OK, responses


async def call(channel, method, request, **kwargs):
    return await finish(start(channel, method, request, **kwargs))


METHODS = pytest.mark.parametrize("method", ["Unary", "Generate", "Write", "Collect", "Echo"])


@METHODS
async def test_a_call_that_succeeds_is_one_server_span_with_status_ok(method):
    async with serving() as (channel, service, recorder):
        code, responses = await call(channel, method, b"fine")
        span = await recorder.only()
    expected = {"Unary": [b"the cat"], "Generate": [b"one", b"two"], "Write": [b"one", b"two"]}
    assert code is grpc.StatusCode.OK
    assert responses == expected.get(method, [b"fine"])
    assert span.name == f"test.Service/{method}"
    assert span.kind is SpanKind.SERVER
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes) == {
        "rpc.system.name": "grpc",
        "rpc.method": f"test.Service/{method}",
        "rpc.response.status_code": "OK",
    }
    assert service.seen == [span.context]


@METHODS
@pytest.mark.parametrize(
    ("request_", "sent", "recorded", "error_type"),
    [
        (b"abort", "NOT_FOUND", "NOT_FOUND", None),
        (b"set_code", "ABORTED", "ABORTED", None),
        (b"abort_internal", "INTERNAL", "INTERNAL", "INTERNAL"),
        (b"raise", "UNKNOWN", "INTERNAL", "ValueError"),
    ],
)
async def test_a_call_that_fails_has_its_status_and_only_the_servers_faults_are_errors(
    method, request_, sent, recorded, error_type
):
    async with serving() as (channel, _, recorder):
        code, _ = await call(channel, method, request_)
        span = await recorder.only()
    assert code.name == sent
    assert span.attributes["rpc.response.status_code"] == recorded
    assert span.attributes.get("error.type") == error_type
    assert span.status.status_code is (StatusCode.UNSET if error_type is None else StatusCode.ERROR)
    assert "the cat" not in span.to_json()


@METHODS
async def test_a_call_that_the_caller_gives_up_is_cancelled(method):
    async with serving() as (channel, service, recorder):
        under_way = start(channel, method, b"hang")
        task = asyncio.create_task(finish(under_way))
        await asyncio.wait_for(service.entered.wait(), 10)
        # Cancelling the task instead is lost, now and then, between the call's start and its first read.
        under_way.cancel()
        span = await recorder.only()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert span.attributes["rpc.response.status_code"] == "CANCELLED"
    assert span.status.status_code is StatusCode.UNSET


@METHODS
async def test_a_call_past_its_deadline_is_told_from_a_cancelled_one(method):
    async with serving() as (channel, _, recorder):
        code, _ = await call(channel, method, b"hang", timeout=0.2)
        span = await recorder.only()
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert span.attributes["rpc.response.status_code"] == "DEADLINE_EXCEEDED"
    assert span.attributes["error.type"] == "DEADLINE_EXCEEDED"
    assert span.status.status_code is StatusCode.ERROR


async def test_a_caller_who_leaves_in_the_middle_of_a_stream_ends_the_span():
    async with serving() as (channel, _, recorder):
        stream = channel.unary_stream("/test.Service/Generate")(b"endless")
        while await stream.read() != CHUNK:
            pass
        stream.cancel()
        span = await recorder.only()
    assert span.attributes["rpc.response.status_code"] == "CANCELLED"


async def test_a_deadline_in_the_middle_of_a_stream_is_recorded_as_such():
    async with serving() as (channel, _, recorder):
        code, _ = await call(channel, "Generate", b"endless", timeout=0.2)
        span = await recorder.only()
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert span.attributes["rpc.response.status_code"] == "DEADLINE_EXCEEDED"


async def test_the_span_continues_the_trace_of_the_caller():
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    metadata = (("traceparent", f"00-{trace_id}-{span_id}-01"), ("authorization", "Bearer the cat"))
    async with serving() as (channel, _, recorder):
        await call(channel, "Unary", b"fine", metadata=metadata)
        span = await recorder.only()
    assert trace.format_trace_id(span.context.trace_id) == trace_id
    assert trace.format_span_id(span.parent.span_id) == span_id
    assert span.parent.is_remote
    assert "the cat" not in span.to_json()


async def test_what_the_caller_calls_baggage_is_not_taken():
    async with serving() as (channel, service, recorder):
        await call(channel, "Unary", b"fine", metadata=(("baggage", "pet=the%20cat"),))
        span = await recorder.only()
    assert {} == service.baggage
    assert "the%20cat" not in span.to_json()


@METHODS
@pytest.mark.parametrize(
    ("request_", "recorded", "error_type"),
    [(b"fine", "OK", None), (b"abort", "NOT_FOUND", None), (b"raise", "INTERNAL", "ValueError")],
)
async def test_every_call_is_measured_by_method_and_status(method, request_, recorded, error_type, measured):
    async with serving(measured.provider) as (channel, _, recorder):
        await call(channel, method, request_)
        span = await recorder.only()
    (point,) = measured.points("rpc.server.call.duration")
    (exemplar,) = point.exemplars
    assert dict(span.attributes) == dict(point.attributes)
    assert (recorded, error_type) == (
        point.attributes["rpc.response.status_code"],
        point.attributes.get("error.type"),
    )
    assert (1, RPC_BUCKETS_S) == (point.count, point.explicit_bounds)
    assert pytest.approx((span.end_time - span.start_time) / 1e9, abs=1.0) == point.sum
    assert (span.context.trace_id, span.context.span_id) == (exemplar.trace_id, exemplar.span_id)


async def test_a_call_whose_trace_is_not_kept_is_measured_without_an_exemplar(measured):
    async with serving(measured.provider, ParentBased(TraceIdRatioBased(0.0))) as (channel, service, recorder):
        await call(channel, "Unary", b"fine")
    (point,) = measured.points("rpc.server.call.duration")
    assert (1, []) == (point.count, list(point.exemplars))
    assert ((), False) == (recorder.get_finished_spans(), service.seen[0].trace_flags.sampled)


async def test_calls_under_way_are_counted():
    async with serving() as (channel, service, recorder):
        under_way = start(channel, "Unary", b"hang")
        await asyncio.wait_for(service.entered.wait(), 10)
        during = service.interceptor.calls_under_way
        under_way.cancel()
        await recorder.only()
    assert (1, 0) == (during, service.interceptor.calls_under_way)


@pytest.mark.parametrize(("method", "expected"), [("Missing", "UNIMPLEMENTED"), ("Blocking", "OK")])
async def test_unknown_methods_and_blocking_handlers_pass_without_a_span(method, expected):
    async with serving() as (channel, _, recorder):
        code, _ = await call(channel, method, b"fine")
    assert code.name == expected
    assert recorder.get_finished_spans() == ()
