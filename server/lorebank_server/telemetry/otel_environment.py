"""What the standard ``OTEL_*`` variables say that the SDK leaves to its user."""

import os
from collections.abc import Collection
from typing import Final, Literal

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from lorebank_server.config import ConfigurationError

SERVICE_NAME: Final = "lorebank"

Signal = Literal["TRACES", "METRICS"]


def exporter_names(signal: Signal, *, known: Collection[str]) -> list[str]:
    """The exporters to set up, in the order given; none when the SDK is switched off.

    ``OTEL_<signal>_EXPORTER`` names them, with commas between; without it an OTLP endpoint stands for ``otlp``.

    Raises:
        ConfigurationError: A name that is not ``known``, or OTLP over something else than gRPC.
    """
    if sdk_is_disabled():
        return []
    variable = f"OTEL_{signal}_EXPORTER"
    named = os.environ.get(variable, "").strip().lower()
    if not named:
        endpoints = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        named = "otlp" if any(os.environ.get(name) for name in endpoints) else "none"
    names = [name for name in dict.fromkeys(part.strip() for part in named.split(",")) if name != "none"]
    for name in names:
        if name not in known:
            raise ConfigurationError(f"{variable} names {name!r}: expected {', '.join(known)} or none")
    if "otlp" in names:
        _require_grpc(signal)
    return names


def sdk_is_disabled() -> bool:
    """Whether ``OTEL_SDK_DISABLED`` switches everything off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def resource(service_version: str) -> Resource:
    """Who the telemetry is from; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` have the last word."""
    return Resource.create(
        {
            "service.name": SERVICE_NAME,
            "service.version": service_version,
            **OTELResourceDetector().detect().attributes,
        }
    )


def _require_grpc(signal: Signal) -> None:
    protocols = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((os.environ[name] for name in protocols if os.environ.get(name)), "grpc")
    if protocol != "grpc":
        raise ConfigurationError(f"OTLP over {protocol!r} is not supported: set OTEL_EXPORTER_OTLP_PROTOCOL to grpc")
