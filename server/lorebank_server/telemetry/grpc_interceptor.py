"""One server span and one measured duration for each RPC, with the status that the caller gets.

Place it outermost, around the interceptor that turns errors into statuses: what still comes through as an ordinary
exception is recorded as INTERNAL. The names are those of the semantic conventions for RPC.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

import grpc
from opentelemetry import metrics, trace
from opentelemetry.semconv._incubating.attributes.rpc_attributes import (
    RPC_METHOD,
    RPC_RESPONSE_STATUS_CODE,
    RPC_SYSTEM_NAME,
    RpcSystemNameValues,
)
from opentelemetry.semconv._incubating.metrics.rpc_metrics import RPC_SERVER_CALL_DURATION
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lorebank_server.telemetry.grpc_handlers import (
    Context,
    Continuation,
    Handler,
    awaitable_behaviour,
    with_behaviour,
)
from lorebank_server.telemetry.metrics import SCHEMA_URL

RPC_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds that the conventions ask for, in seconds."""

# What the conventions call the server's own fault, as against the caller's.
_SERVER_FAULTS: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
# The caller's trace, and nothing else: baggage is text that anyone may write.
_TRACE_HEADERS: Final = frozenset({"traceparent", "tracestate"})
_SCOPE: Final = "lorebank.rpc"


class TelemetryInterceptor(grpc.aio.ServerInterceptor):
    """Opens a span around every handler, as a child of the caller's trace context if one was sent, and measures it.

    Both hold the method and the status, and the class of an exception that nobody translated; no payload, no
    metadata, no messages. A duration is measured whether or not its trace is kept; a kept one is its exemplar.
    Unknown methods and handlers that are not asynchronous pass unseen.

    Attributes:
        calls_under_way: Handlers that have begun and not ended.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        """Use these providers; None means the process's own."""
        self.calls_under_way = 0
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider, schema_url=SCHEMA_URL)
        self._duration = metrics.get_meter(
            _SCOPE, meter_provider=meter_provider, schema_url=SCHEMA_URL
        ).create_histogram(
            RPC_SERVER_CALL_DURATION,
            unit="s",
            description="Time from the arrival of a call to its end, by method and status.",
            explicit_bucket_boundaries_advisory=RPC_BUCKETS_S,
        )
        self._propagator = TraceContextTextMapPropagator()

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Give back the handler with a span around it; None stays None."""
        handler = await continuation(handler_call_details)
        behaviour = awaitable_behaviour(handler) if handler is not None else None
        if handler is None or behaviour is None:
            return handler

        async def watched(request: Any, context: Context) -> Any:
            with self._span(handler_call_details, context):
                return await behaviour(request, context)

        return with_behaviour(handler, watched)

    @contextmanager
    def _span(self, details: grpc.HandlerCallDetails, context: Context) -> Iterator[None]:
        started = perf_counter()
        method = details.method.removeprefix("/")
        call = {RPC_SYSTEM_NAME: RpcSystemNameValues.GRPC.value, RPC_METHOD: method}
        carrier = {key: str(value) for key, value in details.invocation_metadata or () if key in _TRACE_HEADERS}
        self.calls_under_way += 1
        with self._tracer.start_as_current_span(
            method,
            context=self._propagator.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes=call,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            outcome: dict[str, str] = {}
            try:
                yield
            except BaseException as error:
                outcome = _outcome(_failed_with(error, context), error)
                raise
            else:
                outcome = _outcome(context.code() or grpc.StatusCode.OK)
            finally:
                self.calls_under_way -= 1
                span.set_attributes(outcome)
                if ERROR_TYPE in outcome:
                    span.set_status(trace.StatusCode.ERROR)
                # Still within the span, which becomes the exemplar.
                self._duration.record(perf_counter() - started, call | outcome)


def _failed_with(error: BaseException, context: Context) -> grpc.StatusCode:
    if isinstance(error, grpc.aio.AbortError):
        return context.code()
    if context.time_remaining() == 0:
        return grpc.StatusCode.DEADLINE_EXCEEDED
    # Cancelled, or a write to a caller who has left: the latter shows as gRPC's own error, without a cancellation.
    if not isinstance(error, Exception) or (
        isinstance(error, grpc.aio.BaseError) and not isinstance(error, grpc.aio.UsageError)
    ):
        return grpc.StatusCode.CANCELLED
    return grpc.StatusCode.INTERNAL


def _outcome(code: grpc.StatusCode, error: BaseException | None = None) -> dict[str, str]:
    """The attributes of the end of a call; a server's fault has a type."""
    if code not in _SERVER_FAULTS:
        return {RPC_RESPONSE_STATUS_CODE: code.name}
    untranslated = isinstance(error, Exception) and not isinstance(error, grpc.aio.BaseError)
    return {
        RPC_RESPONSE_STATUS_CODE: code.name,
        ERROR_TYPE: type(error).__qualname__ if untranslated else code.name,
    }
