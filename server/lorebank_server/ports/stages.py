"""Spans for the stages of an operation, through the OpenTelemetry API alone: free of any set-up of it."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace

_PREFIX = "lorebank."


@contextmanager
def stage(name: str, **attributes: str | bool | float) -> Iterator[trace.Span]:
    """Measure one stage as the span ``lorebank.<name>``, a child of the span around it.

    Without tracing set up it costs a few microseconds and records nothing. Attributes are numbers, flags and names
    of modes, prefixed ``lorebank.``; never memory text, queries or vectors. An exception marks the span as failed
    and passes through; only its class is recorded, because messages may quote text. Cancellation passes unmarked.

    Args:
        name: The stage: embed, dense, lexical, confirm, fuse, hydrate or rank.
        **attributes: What is known at the start; more can be set on the span, with their prefix.

    Yields:
        The span, current within the block.
    """
    with _tracer().start_as_current_span(
        _PREFIX + name,
        attributes={_PREFIX + key: value for key, value in attributes.items()},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(trace.StatusCode.ERROR)
            raise


@functools.cache
def _tracer() -> trace.Tracer:
    # Asked for before tracing is set up, this is a proxy that finds the real tracer later.
    return trace.get_tracer("lorebank")
