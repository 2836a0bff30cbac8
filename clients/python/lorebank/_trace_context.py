"""The caller's current trace, to be sent along with a call."""

import sys


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """The metadata ``traceparent``, and ``tracestate`` if there is one; nothing without a current OpenTelemetry span.

    Baggage stays here: it may hold anything, and the server would not read it.
    """
    # A program that has not loaded OpenTelemetry has no span, and need not wait for it to load.
    if "opentelemetry.trace" not in sys.modules:
        return ()
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return tuple(headers.items())
