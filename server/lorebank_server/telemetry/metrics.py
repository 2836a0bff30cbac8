"""Metrics, set up from the standard ``OTEL_*`` variables and one setting; nothing at all is set up without them."""

import os
import sys
from dataclasses import dataclass
from typing import Final

from opentelemetry import metrics
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.semconv.schemas import Schemas

from lorebank_server.config import ConfigurationError, split_listen
from lorebank_server.telemetry.otel_environment import exporter_names, resource, sdk_is_disabled
from lorebank_server.telemetry.prometheus import PrometheusPage, PrometheusReader

SCHEMA_URL: Final = Schemas.V1_44_0.value
"""The edition of the semantic conventions that names of spans, metrics and attributes follow."""

_DEFAULT_PROMETHEUS_PORT: Final = "9464"


@dataclass(frozen=True, slots=True)
class Metrics:
    """What ``configure_metrics`` set up.

    Attributes:
        provider: The provider of meters; None when metrics are off.
        page: Where Prometheus reads them; None when it was not asked for.
    """

    provider: MeterProvider | None = None
    page: PrometheusPage | None = None

    @property
    def enabled(self) -> bool:
        """Whether anything is measured."""
        return self.provider is not None

    def close(self) -> None:
        """Send what was measured last and stop; blocks for up to 30 s where a receiver does not answer."""
        if self.page is not None:
            self.page.close()
        if self.provider is not None:
            self.provider.shutdown()


def configure_metrics(service_version: str, *, listen: str | None = None) -> Metrics:
    """Set up the process's meter provider; to be called once, in the process that serves.

    ``OTEL_METRICS_EXPORTER`` names the exporters (``otlp``, ``prometheus``, ``console``, ``none``, with commas
    between); without it an OTLP endpoint stands for ``otlp``. An address to ``listen`` on adds ``prometheus``. The
    SDK reads intervals, temporality and the filter of exemplars from the environment by itself.

    Args:
        service_version: ``service.version`` unless ``OTEL_RESOURCE_ATTRIBUTES`` says otherwise.
        listen: host:port of the page for Prometheus; None leaves that to ``OTEL_METRICS_EXPORTER`` and to
            ``OTEL_EXPORTER_PROMETHEUS_HOST`` and ``_PORT``.

    Raises:
        ConfigurationError: An exporter or a protocol that this server does not have, or an address that it cannot
            listen on.
    """
    names = exporter_names("METRICS", known=("otlp", "prometheus", "console"))
    if listen is not None and not sdk_is_disabled():
        names = [*names, "prometheus"]
    if not names:
        return Metrics()
    readers: list[MetricReader] = []
    page: PrometheusPage | None = None
    if "prometheus" in names:
        reader = PrometheusReader()
        page = PrometheusPage(reader, *_prometheus_address(listen))
        readers.append(reader)
    if "otlp" in names:
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    if "console" in names:
        readers.append(
            PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr, formatter=_json_line)),
        )
    provider = MeterProvider(readers, resource=resource(service_version), shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    if page is not None:
        page.start()
    return Metrics(provider, page)


def _prometheus_address(listen: str | None) -> tuple[str, int]:
    if listen is not None:
        return split_listen(listen)
    host = os.environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "localhost"
    port = os.environ.get("OTEL_EXPORTER_PROMETHEUS_PORT") or _DEFAULT_PROMETHEUS_PORT
    if not port.isascii() or not port.isdigit():
        raise ConfigurationError(f"OTEL_EXPORTER_PROMETHEUS_PORT is {port!r}: expected a number")
    return host, int(port)


def _json_line(data: MetricsData) -> str:
    return f"{data.to_json(indent=None)}\n"
