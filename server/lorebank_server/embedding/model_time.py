"""What the model itself takes, apart from waiting for it: measured where it runs, through the OpenTelemetry API."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final, Literal

from opentelemetry import metrics

MODEL_DURATION: Final = "lorebank.embedding.model.duration"
TEXTS: Final = "lorebank.embedding.texts"

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

InputKind = Literal["query", "document"]


@contextmanager
def model_run(kind: InputKind, *, texts: int) -> Iterator[None]:
    """Measure one run of the model, or one request to an endpoint, and count its texts if it succeeds.

    Args:
        kind: What is embedded.
        texts: How many in this run.
    """
    attributes: dict[str, str] = {"lorebank.embedding.input": kind}
    started = perf_counter()
    try:
        yield
    except Exception as error:
        _duration().record(perf_counter() - started, {**attributes, "error.type": type(error).__qualname__})
        raise
    _duration().record(perf_counter() - started, attributes)
    _texts().add(texts, attributes)


@functools.cache
def _duration() -> metrics.Histogram:
    # Asked for before metrics are set up, this is a proxy that finds the real one later.
    return metrics.get_meter("lorebank").create_histogram(
        MODEL_DURATION,
        unit="s",
        description="Time that the embedding model worked on one batch, or that its endpoint took to answer one.",
        explicit_bucket_boundaries_advisory=_BUCKETS_S,
    )


@functools.cache
def _texts() -> metrics.Counter:
    return metrics.get_meter("lorebank").create_counter(
        TEXTS, unit="{text}", description="Texts that the embedding model has embedded."
    )
