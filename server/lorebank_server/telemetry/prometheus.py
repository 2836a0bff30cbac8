"""Metrics on a page that Prometheus reads, with exemplars where it asks for OpenMetrics.

The reader of the OpenTelemetry project drops exemplars, hence this one; the text formats are those of
``prometheus_client``. Names are mapped as the OpenTelemetry specification says: dots become underscores, the unit is
appended, and counters end in ``_total``.
"""

import re
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from socket import AF_INET, AF_INET6
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from opentelemetry.sdk.metrics.export import (
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    Sum,
)
from opentelemetry.trace import format_span_id, format_trace_id
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from lorebank_server.config import ConfigurationError

_UNITS: Final[Mapping[str, str]] = {"s": "seconds", "By": "bytes"}
_REQUEST_TIMEOUT_S: Final = 10

_log = structlog.get_logger(__name__)


class PrometheusReader(MetricReader):
    """Collects when it is asked, and not before; safe to ask from several threads."""

    def __init__(self) -> None:
        super().__init__()
        self._one_at_a_time = threading.Lock()
        self._received: MetricsData | None = None

    def read(self) -> MetricsData | None:
        """All metrics as they stand, with the exemplars since the last time; None when nothing was measured yet."""
        with self._one_at_a_time:
            self.collect()
            received, self._received = self._received, None
        return received

    def shutdown(self, timeout_millis: float = 30_000, **_kwargs: Any) -> None:
        """Nothing to send: who wants the last values must have asked before."""

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_kwargs: Any) -> None:  # noqa: ARG002
        self._received = metrics_data


class PrometheusPage:
    """The page on a port of its own, served by threads, so that it answers while the event loop is busy.

    Attributes:
        port: The port, also where any was asked for.
    """

    def __init__(self, reader: PrometheusReader, host: str, port: int) -> None:
        """Take the port.

        Raises:
            ConfigurationError: It is taken, or the address is not this machine's.
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(reader))
        server_class = _ServerV6 if ":" in host else _Server
        try:
            self._server = server_class((host, port), _Request)
        except OSError as error:
            raise ConfigurationError(
                f"Cannot serve metrics on {host}:{port}: another program has that port, or the address is not this "
                "machine's. Stop the other one, or set LOREBANK_METRICS_LISTEN."
            ) from error
        self._server.set_app(make_wsgi_app(registry))
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics-page", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Give the port back; requests under way end with the process."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Families(Collector):
    """What the page shows, in the order in which it was first measured."""

    def __init__(self, reader: PrometheusReader) -> None:
        self._reader = reader

    def collect(self) -> Iterable[Family]:
        data = self._reader.read()
        return [] if data is None else list(_families(data))


class _Server(ThreadingMixIn, WSGIServer):
    address_family = AF_INET
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        # The class above would ask the resolver for this machine's name, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's names
        # A reader that left; the default would print to standard error, past the log.
        _log.debug("metrics_request_failed", exc_info=True)


class _ServerV6(_Server):
    address_family = AF_INET6


class _Request(WSGIRequestHandler):
    timeout = _REQUEST_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Requests for the page are no events."""


def _families(data: MetricsData) -> Iterator[Family]:
    for resource_metrics in data.resource_metrics:
        attributes = _labels(resource_metrics.resource.attributes)
        target = InfoMetricFamily("target", "Who these metrics are from.", labels=())
        target.add_metric((), attributes)
        yield target
        for scope_metrics in resource_metrics.scope_metrics:
            yield from map(_family, scope_metrics.metrics)


def _family(metric: Metric) -> Family:
    name = re.sub(r"[^a-zA-Z0-9_:]", "_", metric.name)
    unit = _UNITS.get(metric.unit or "", "")
    points: Sequence[Any] = metric.data.data_points
    labelled = [_labels(point.attributes) for point in points]
    names = sorted({label for labels in labelled for label in labels})
    rows = [[labels.get(label, "") for label in names] for labels in labelled]
    documentation = metric.description or ""
    if isinstance(metric.data, Histogram):
        histogram = HistogramMetricFamily(name, documentation, labels=names, unit=unit)
        for row, point in zip(rows, points, strict=True):
            histogram.add_metric(row, _buckets(point), point.sum)
        return histogram
    is_counter = isinstance(metric.data, Sum) and metric.data.is_monotonic
    family_class = CounterMetricFamily if is_counter else GaugeMetricFamily
    family = family_class(name, documentation, labels=names, unit=unit)
    for row, point in zip(rows, points, strict=True):
        family.add_metric(row, point.value)
    return family


def _buckets(point: HistogramDataPoint) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    bounds = [*(str(bound) for bound in point.explicit_bounds), "+Inf"]
    exemplars: dict[int, Exemplar] = {}
    for exemplar in point.exemplars:
        if exemplar.trace_id is not None and exemplar.span_id is not None:
            labels = {"trace_id": format_trace_id(exemplar.trace_id), "span_id": format_span_id(exemplar.span_id)}
            position = bisect_left(point.explicit_bounds, exemplar.value)
            exemplars[position] = Exemplar(labels, exemplar.value, exemplar.time_unix_nano / 1e9)
    counts = accumulate(point.bucket_counts)
    return [
        (bound, float(count), exemplars[position]) if position in exemplars else (bound, float(count))
        for position, (bound, count) in enumerate(zip(bounds, counts, strict=True))
    ]


def _labels(attributes: Mapping[str, Any] | None) -> dict[str, str]:
    return {re.sub(r"[^a-zA-Z0-9_]", "_", key): str(value) for key, value in (attributes or {}).items()}
