"""The channel to the server: deadlines, retries, credential, trace, errors."""

import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final, TypeVar

import grpc

from lorebank._status import from_rpc_error
from lorebank._trace_context import trace_metadata
from lorebank.v1.memory_service_pb2_grpc import MemoryServiceStub
from lorebank.v1.space_service_pb2_grpc import SpaceServiceStub

if TYPE_CHECKING:  # names that only the typed stubs have
    from lorebank.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub
    from lorebank.v1.space_service_pb2_grpc import SpaceServiceAsyncStub

MAX_RECEIVED_BYTES: Final = 64 * 1024 * 1024
"""Largest answer taken; a page of 500 long memories is larger than gRPC's default of 4 MiB."""

_MAX_ATTEMPTS: Final = 5
_SPACE_SERVICE: Final = "lorebank.v1.SpaceService"
_NOT_IDEMPOTENT: Final = ("CreateKey", "CreateSpace", "DeleteSpace")
"""Calls whose lost answer must not be asked for again: a second try makes another key, or fails on its own success."""

_RETRIED: Final = ("UNAVAILABLE", "CANCELLED")
"""What a server answers that is away, and what one answers that was stopped before it looked at the call. A call that
this side cancels is not repeated."""

_SERVICE_CONFIG: Final = {
    "methodConfig": [
        {
            "name": [{"service": "lorebank.v1.MemoryService"}, {"service": _SPACE_SERVICE}],
            "retryPolicy": {
                "maxAttempts": _MAX_ATTEMPTS,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": _RETRIED,
            },
        },
        {"name": [{"service": _SPACE_SERVICE, "method": method} for method in _NOT_IDEMPOTENT]},
    ]
}

_OPTIONS: Final = (
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.max_receive_message_length", MAX_RECEIVED_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A client has a connection of its own: of several, each may be served by another process.
    ("grpc.use_local_subchannel_pool", 1),
)

_LOOPBACK: Final = ("127.", "localhost:", "[::1]")

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Transport:
    """One channel with what every call on it needs.

    Attributes:
        timeout_s: Seconds that a call may take, retries included, unless it says otherwise.
    """

    def __init__(
        self, server: str, *, api_key: str, timeout_s: float, tls: bool, root_certificates: bytes | None
    ) -> None:
        self.timeout_s = timeout_s
        if not (api_key.isascii() and api_key.isprintable()):
            raise ValueError("The API key has characters that no key has; was something else copied?")
        self._server = server
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._credentials = grpc.ssl_channel_credentials(root_certificates) if tls or root_certificates else None
        self._channel: grpc.aio.Channel | None = None
        self._closed = False

    @property
    def memories(self) -> "MemoryServiceAsyncStub":
        """Stub of the memory service."""
        return MemoryServiceStub(self._open())

    @property
    def spaces(self) -> "SpaceServiceAsyncStub":
        """Stub of the space service."""
        return SpaceServiceStub(self._open())

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        *,
        timeout_s: float | None = None,
    ) -> _Response:
        """Make one call.

        Raises:
            LorebankError: It failed; the subclass says how.
        """
        try:
            metadata = (*self._metadata, *trace_metadata())
            return await method(request, timeout=timeout_s or self.timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def stream(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[_Request, _Response],
        request: _Request,
        *,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[_Response, None]:
        """Make one call and yield what it answers; it ends when the iteration does. Without a timeout it has no end.

        Raises:
            LorebankError: It failed; the subclass says how.
        """
        call = method(request, timeout=timeout_s, metadata=(*self._metadata, *trace_metadata()))
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        """End the connection; calls under way are cancelled. Closing again does nothing."""
        self._closed = True
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()

    def _open(self) -> grpc.aio.Channel:
        if self._closed:
            raise RuntimeError("This client is closed: make a new one.")
        if self._channel is None:
            options = list(_OPTIONS)
            if self._server.startswith(_LOOPBACK):
                # A proxy named in the environment cannot reach this machine's own loopback.
                options.append(("grpc.enable_http_proxy", 0))
            if self._credentials is not None:
                self._channel = grpc.aio.secure_channel(self._server, self._credentials, options=options)
            else:
                self._channel = grpc.aio.insecure_channel(self._server, options=options)
        return self._channel
