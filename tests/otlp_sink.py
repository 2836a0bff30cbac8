"""A receiver of OTLP over gRPC that keeps the spans and metrics it is sent, as bytes and as messages."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpSink:
    """Works on threads of its own, so that whoever blocks on an exporter still gets an answer."""

    def __init__(self) -> None:
        self.port = 0
        self.bodies: list[bytes] = []
        self.traces = trace_service_pb2.ExportTraceServiceRequest()
        self.exports: list[metrics_service_pb2.ExportMetricsServiceRequest] = []

    @property
    def endpoint(self) -> str:
        """For ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[Span]:
        scopes = [scope for resource in self.traces.resource_spans for scope in resource.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    @property
    def span_names(self) -> set[str]:
        return {span.name for span in self.spans}

    @property
    def metrics(self) -> dict[str, Metric]:
        """The latest value of every metric by name."""
        return {
            metric.name: metric
            for export in list(self.exports)
            for resource in export.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def take_spans(self, body: bytes, _context: Any) -> bytes:
        self.bodies.append(body)
        self.traces.MergeFromString(body)
        return b""

    def take_metrics(self, body: bytes, _context: Any) -> bytes:
        self.bodies.append(body)
        self.exports.append(metrics_service_pb2.ExportMetricsServiceRequest.FromString(body))
        return b""


@contextmanager
def otlp_sink() -> Iterator[OtlpSink]:
    sink = OtlpSink()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    for service, take in (
        ("opentelemetry.proto.collector.trace.v1.TraceService", sink.take_spans),
        ("opentelemetry.proto.collector.metrics.v1.MetricsService", sink.take_metrics),
    ):
        handlers = {"Export": grpc.unary_unary_rpc_method_handler(take)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    sink.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield sink
    finally:
        server.stop(None).wait()


def attributes_of(message: Any) -> dict[str, str]:
    """The textual attributes of a span, a resource or a point."""
    return {item.key: item.value.string_value for item in message.attributes}
