"""One server span for each RPC, with the status that the caller gets.

Place it outermost, around the interceptor that turns errors into statuses: what still comes through as an ordinary
exception is recorded as INTERNAL. The names of the attributes are those of the semantic conventions for RPC.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc
from opentelemetry import trace
from opentelemetry.semconv._incubating.attributes.rpc_attributes import (
    RPC_METHOD,
    RPC_RESPONSE_STATUS_CODE,
    RPC_SYSTEM_NAME,
    RpcSystemNameValues,
)
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lorebank_server.telemetry.grpc_handlers import (
    Context,
    Continuation,
    Handler,
    awaitable_behaviour,
    with_behaviour,
)

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
_TRACE_HEADERS: Final = frozenset({"traceparent", "tracestate"})


class TracingInterceptor(grpc.aio.ServerInterceptor):
    """Opens a span around every handler, as a child of the caller's trace context if one was sent.

    The span holds the method and the status, and the class of an exception that nobody translated; no payload, no
    metadata, no messages. Unknown methods and handlers that are not asynchronous pass without a span.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("lorebank.rpc", tracer_provider=tracer_provider)
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

        async def traced(request: Any, context: Context) -> Any:
            with self._span(handler_call_details, context):
                return await behaviour(request, context)

        return with_behaviour(handler, traced)

    @contextmanager
    def _span(self, details: grpc.HandlerCallDetails, context: Context) -> Iterator[None]:
        method = details.method.removeprefix("/")
        carrier = {key: str(value) for key, value in details.invocation_metadata or () if key in _TRACE_HEADERS}
        with self._tracer.start_as_current_span(
            method,
            context=self._propagator.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes={RPC_SYSTEM_NAME: RpcSystemNameValues.GRPC.value, RPC_METHOD: method},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                _end(span, _failed_with(error, context), error)
                raise
            _end(span, context.code() or grpc.StatusCode.OK)


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


def _end(span: trace.Span, code: grpc.StatusCode, error: BaseException | None = None) -> None:
    span.set_attribute(RPC_RESPONSE_STATUS_CODE, code.name)
    if code in _SERVER_FAULTS:
        untranslated = isinstance(error, Exception) and not isinstance(error, grpc.aio.BaseError)
        span.set_attribute(ERROR_TYPE, type(error).__qualname__ if untranslated else code.name)
        span.set_status(trace.StatusCode.ERROR)
