"""Measuring in process, without becoming the process's own set-up, which can be made only once."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from otlp_sink import OtlpSink, otlp_sink


@dataclass
class Measured:
    """A provider of meters and what came of it."""

    provider: MeterProvider
    reader: InMemoryMetricReader

    def points(self, name: str) -> list[Any]:
        """The points of a metric; none when it was never measured."""
        return [
            point
            for metrics_of_resource in getattr(self.reader.get_metrics_data(), "resource_metrics", ())
            for scope in metrics_of_resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def values(self, name: str) -> dict[tuple[Any, ...], float]:
        """The values of a metric by those of its attributes, in the alphabetical order of their names."""
        return {tuple(value for _, value in sorted(p.attributes.items())): p.value for p in self.points(name)}


@pytest.fixture
def measured() -> Iterator[Measured]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    yield Measured(provider, reader)
    provider.shutdown()


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    with otlp_sink() as receiving:
        yield receiving


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A clean environment, and the providers that would have become the process's own."""
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    found: list[Any] = []
    monkeypatch.setattr(trace, "set_tracer_provider", found.append)
    monkeypatch.setattr(metrics, "set_meter_provider", found.append)
    yield found
    for provider in found:
        provider.shutdown()
