"""From a spec to the client of a Qdrant server."""

import math
from typing import Any, Final
from urllib.parse import urlsplit

from qdrant_client import AsyncQdrantClient

from lorebank_server.domain.errors import VectorIndexUnavailableError
from lorebank_server.vectors.failures import misconfigured
from lorebank_server.vectors.spec import QdrantSpec

GRPC_PORT: Final = 6334
"""Where Qdrant listens for gRPC unless told otherwise."""

# A server that was away is tried again within two seconds, where gRPC alone would wait up to two minutes; and a
# connection that died without a word is noticed within half a minute of use.
_CHANNEL_OPTIONS: Final = {
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 2000,
    "grpc.max_reconnect_backoff_ms": 2000,
    "grpc.keepalive_time_ms": 20_000,
    "grpc.keepalive_timeout_ms": 5_000,
    # A client opened anew must not be given the connection of the one before.
    "grpc.use_local_subchannel_pool": 1,
}


def open_client(spec: QdrantSpec) -> AsyncQdrantClient:
    """Make a client that connects when it is first used.

    Raises:
        VectorIndexUnavailableError: The address, the key or the file of certificates cannot be used.
    """
    host, port, tls = _address(spec.url)
    options: dict[str, Any] = dict(_CHANNEL_OPTIONS)
    if spec.ca_file is not None:
        try:
            options["root_certificates"] = spec.ca_file.read_bytes()
        except OSError as error:
            raise misconfigured(
                f"The file of LOREBANK_QDRANT_CA_FILE cannot be read: {type(error).__name__}."
            ) from error
    return AsyncQdrantClient(
        host=host,
        grpc_port=port,
        https=tls,
        prefer_grpc=True,
        check_compatibility=False,  # it asks over HTTP; what depends on the version is asked over gRPC
        pool_size=1,
        # The store's own deadlines come first; this one is a backstop and what the server is told.
        timeout=math.ceil(max(spec.timeout_s, spec.write_timeout_s)) + 1,
        # As a header: given as an argument, the client warns wherever TLS ends at a proxy.
        headers=_headers(spec.api_key),
        grpc_options=options,
    )


def _address(url: str) -> tuple[str, int, bool]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or GRPC_PORT
    except ValueError:
        raise _unusable_address() from None
    if not host or parts.scheme not in {"http", "https"}:
        raise _unusable_address()
    return f"[{host}]" if ":" in host else host, port, parts.scheme == "https"


def _unusable_address() -> VectorIndexUnavailableError:
    return misconfigured("LOREBANK_QDRANT_URL must begin with http:// or https:// and a host.")


def _headers(api_key: str | None) -> dict[str, str]:
    if not api_key:
        return {}
    if not (api_key.isascii() and api_key.isprintable()):
        raise misconfigured("LOREBANK_QDRANT_API_KEY holds characters that no header can carry.")
    return {"api-key": api_key}
