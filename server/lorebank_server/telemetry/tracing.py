"""Traces, set up from the standard ``OTEL_*`` variables; nothing at all is set up without them."""

import os
import sys
import threading
from dataclasses import dataclass
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

from lorebank_server.config import ConfigurationError

SERVICE_NAME: Final = "lorebank"

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@dataclass(frozen=True, slots=True)
class Tracing:
    """What ``configure_tracing`` set up.

    Attributes:
        provider: The provider of tracers; None when traces are off.
    """

    provider: TracerProvider | None = None

    @property
    def enabled(self) -> bool:
        """Whether spans are made; without, leave the interceptor out of the server."""
        return self.provider is not None

    def shutdown(self, timeout_s: float) -> bool:
        """Send the spans still held and stop; blocks for ``timeout_s`` at most, so call it off the event loop.

        A receiver that does not answer loses those spans; the thread that waits for it dies with the process.

        Returns:
            Whether it ended in time; True at once when traces are off.
        """
        if self.provider is None:
            return True
        # The provider's own shutdown waits up to 30 s for each processor and takes no other bound.
        worker = threading.Thread(target=self.provider.shutdown, name="tracing-shutdown", daemon=True)
        worker.start()
        worker.join(timeout_s)
        return not worker.is_alive()


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
    exporters = [_exporter(name) for name in _exporter_names()]
    if not exporters:
        return Tracing()
    resource = Resource.create(
        {
            "service.name": SERVICE_NAME,
            "service.version": service_version,
            **OTELResourceDetector().detect().attributes,
        }
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return Tracing(provider)


def _exporter_names() -> list[str]:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    named = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if not named:
        return ["otlp"] if any(os.environ.get(name) for name in _ENDPOINTS) else []
    return [name.strip() for name in named.split(",") if name.strip() != "none"]


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter(out=sys.stderr, formatter=_json_line)
    if name != "otlp":
        raise ConfigurationError(f"OTEL_TRACES_EXPORTER names {name!r}: expected otlp, console or none")
    protocol = next((os.environ[variable] for variable in _PROTOCOLS if os.environ.get(variable)), "grpc")
    if protocol != "grpc":
        raise ConfigurationError(f"OTLP over {protocol!r} is not supported: set OTEL_EXPORTER_OTLP_PROTOCOL to grpc")
    return OTLPSpanExporter()


def _json_line(span: ReadableSpan) -> str:
    return f"{span.to_json(indent=None)}\n"
