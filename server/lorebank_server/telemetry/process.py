"""Traces and metrics of one process, set up from its environment and ended together."""

from dataclasses import dataclass, field
from time import monotonic

from lorebank_server.telemetry.bounded import BoundedWork
from lorebank_server.telemetry.metrics import Metrics, configure_metrics
from lorebank_server.telemetry.tracing import Tracing, configure_tracing


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What this process tells of itself besides its log; by default nothing."""

    tracing: Tracing = field(default_factory=Tracing)
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def enabled(self) -> bool:
        """Whether calls need to be watched; without, leave the interceptor out of the server."""
        return self.tracing.enabled or self.metrics.enabled

    def shutdown(self, timeout_s: float) -> bool:
        """Send what is still held and stop; blocks for ``timeout_s`` at most, so call it off the event loop.

        A receiver that does not answer loses it; the threads that wait for it die with the process.

        Returns:
            Whether it ended in time; True at once when nothing was set up.
        """
        if not self.enabled:
            return True
        deadline = monotonic() + timeout_s
        parts = [
            BoundedWork(self.tracing.close, name="tracing-shutdown"),
            BoundedWork(self.metrics.close, name="metrics-shutdown"),
        ]
        return all(part.wait(max(0.0, deadline - monotonic())) for part in parts)


def configure_telemetry(service_version: str, *, metrics_listen: str | None = None) -> Telemetry:
    """Set up both, once in a process.

    Args:
        service_version: ``service.version`` unless ``OTEL_RESOURCE_ATTRIBUTES`` says otherwise.
        metrics_listen: host:port of the page for Prometheus; None leaves it to ``OTEL_METRICS_EXPORTER``.

    Raises:
        ConfigurationError: The environment asks for what this server does not have, or for an address that it
            cannot listen on.
    """
    # Metrics first: only they can be refused by the machine, and then no span has been exported yet.
    metrics = configure_metrics(service_version, listen=metrics_listen)
    return Telemetry(configure_tracing(service_version), metrics)
