"""Spans and durations of the stages of an operation, through the OpenTelemetry API alone: free of any set-up of it."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from opentelemetry import metrics, trace

STAGE_DURATION: Final = "lorebank.stage.duration"
STAGE_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_PREFIX = "lorebank."
_STAGE = "lorebank.stage"
_ERROR_TYPE = "error.type"


@contextmanager
def stage(name: str, **attributes: str | bool | float) -> Iterator[trace.Span]:
    """Measure one stage as the span ``lorebank.<name>``, a child of the span around it, and in a histogram.

    The histogram ``lorebank.stage.duration`` gets every stage, whether or not its trace is kept; a kept one is its
    exemplar. Without telemetry set up it costs about ten microseconds and records nothing. Attributes are numbers,
    flags and names of modes, prefixed ``lorebank.``; never memory text, queries or vectors. An exception marks the
    span as failed and passes through; only its class is recorded, because messages may quote text. Cancellation
    passes unmarked, and its duration says nothing of the stage, so it is not measured.

    Args:
        name: The stage: embed, dense, lexical, confirm, rank, hydrate or write.
        **attributes: What is known at the start of the span; ``note`` adds what is known later.

    Yields:
        The span, current within the block.
    """
    started = perf_counter()
    with _tracer().start_as_current_span(
        _PREFIX + name,
        attributes={_PREFIX + key: value for key, value in attributes.items()},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except Exception as error:
            failure = type(error).__qualname__
            span.set_attribute(_ERROR_TYPE, failure)
            span.set_status(trace.StatusCode.ERROR)
            _duration().record(perf_counter() - started, {_STAGE: name, _ERROR_TYPE: failure})
            raise
        # Still within the span, which becomes the exemplar.
        _duration().record(perf_counter() - started, {_STAGE: name})


def note(**attributes: str | bool | float) -> None:
    """Set attributes, prefixed ``lorebank.``, on the span around: the stage's, or that of the call outside of stages.

    The same values are allowed as for ``stage``. Nothing happens without a span that is recorded.
    """
    span = trace.get_current_span()
    if span.is_recording():
        for key, value in attributes.items():
            span.set_attribute(_PREFIX + key, value)


@functools.cache
def _tracer() -> trace.Tracer:
    # Asked for before tracing is set up, this is a proxy that finds the real tracer later.
    return trace.get_tracer("lorebank")


@functools.cache
def _duration() -> metrics.Histogram:
    # A proxy too.
    return metrics.get_meter("lorebank").create_histogram(
        STAGE_DURATION,
        unit="s",
        description="Time that a stage of an operation took.",
        explicit_bucket_boundaries_advisory=STAGE_BUCKETS_S,
    )
