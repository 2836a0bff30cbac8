"""Traces, set up from the standard ``OTEL_*`` variables; nothing at all is set up without them."""

import sys
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

from lorebank_server.telemetry.otel_environment import exporter_names, resource


@dataclass(frozen=True, slots=True)
class Tracing:
    """What ``configure_tracing`` set up.

    Attributes:
        provider: The provider of tracers; None when traces are off.
    """

    provider: TracerProvider | None = None

    @property
    def enabled(self) -> bool:
        """Whether spans are made."""
        return self.provider is not None

    def close(self) -> None:
        """Send the spans still held and stop; blocks for up to 30 s where a receiver does not answer."""
        if self.provider is not None:
            self.provider.shutdown()


def configure_tracing(service_version: str) -> Tracing:
    """Set up the process's tracer provider from ``OTEL_*``; to be called once, in the process that serves.

    ``OTEL_TRACES_EXPORTER`` names the exporters (``otlp``, ``console``, ``none``, with commas between); without
    it an OTLP endpoint stands for ``otlp``, and without that there are no traces. The SDK reads the sampler, the
    limits and the batch sizes from the environment by itself.

    Args:
        service_version: ``service.version`` unless ``OTEL_RESOURCE_ATTRIBUTES`` says otherwise.

    Raises:
        ConfigurationError: An exporter or a protocol that this server does not have.
    """
    names = exporter_names("TRACES", known=("otlp", "console"))
    if not names:
        return Tracing()
    provider = TracerProvider(resource=resource(service_version), shutdown_on_exit=False)
    for name in names:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    trace.set_tracer_provider(provider)
    return Tracing(provider)


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter(out=sys.stderr, formatter=_json_line)
    return OTLPSpanExporter()


def _json_line(span: ReadableSpan) -> str:
    return f"{span.to_json(indent=None)}\n"
