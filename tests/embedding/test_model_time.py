"""What the embedders tell of the time that the model takes."""

import asyncio

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from lorebank_server.embedding import CachedEmbedder, model_time
from lorebank_server.embedding.model_time import model_run


@pytest.fixture
def points(monkeypatch):
    """Reads the points of a metric of this module."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    duration, texts = meter.create_histogram(model_time.MODEL_DURATION), meter.create_counter(model_time.TEXTS)
    monkeypatch.setattr(model_time, "_duration", lambda: duration)
    monkeypatch.setattr(model_time, "_texts", lambda: texts)

    def read(name):
        (resource,) = reader.get_metrics_data().resource_metrics
        (metric,) = [metric for metric in resource.scope_metrics[0].metrics if metric.name == name]
        return {tuple(value for _, value in sorted(p.attributes.items())): p for p in metric.data.data_points}

    return read


async def test_texts_and_runs_of_the_model_are_counted_and_cached_ones_are_not(points, embedder: CachedEmbedder):
    await embedder.embed_query("who runs the model?")
    await embedder.embed_query("who runs the model?")
    texts = ["The model runs.", "The model runs again, and for a good while longer than the first time it ran."]
    await embedder.embed_documents(texts)
    await embedder.embed_documents(texts)
    counted = points("lorebank.embedding.texts")
    assert {("query",): 1, ("document",): 2} == {kind: point.value for kind, point in counted.items()}


async def test_a_run_belongs_to_the_trace_of_whoever_asked_for_it(points, embedder: CachedEmbedder):
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    with tracer.start_as_current_span("asking") as span:
        await embedder.embed_query("whose time is this?")
    point = points("lorebank.embedding.model.duration")["query",]
    assert [span.get_span_context().span_id] == [exemplar.span_id for exemplar in point.exemplars]
    assert point.sum > 0


def test_a_run_that_fails_counts_no_texts_and_is_measured_apart(points):
    with pytest.raises(ValueError, match="the cat"), model_run("document", texts=3):
        raise ValueError("the cat")
    with model_run("document", texts=2):
        pass
    assert [2] == [point.value for point in points("lorebank.embedding.texts").values()]
    runs = points("lorebank.embedding.model.duration")
    assert {("ValueError", "document"), ("document",)} == set(runs)


def test_a_run_that_is_cancelled_is_not_measured(points):
    with model_run("query", texts=1):
        pass
    with pytest.raises(asyncio.CancelledError), model_run("query", texts=1):
        raise asyncio.CancelledError
    assert [1] == [point.count for point in points("lorebank.embedding.model.duration").values()]
