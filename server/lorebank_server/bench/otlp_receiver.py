"""A receiver of OTLP over gRPC that keeps the spans it is sent, in memory and in the order of arrival."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_TRACES: Final = "opentelemetry.proto.collector.trace.v1.TraceService"
_DROPPED: Final = (
    "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "opentelemetry.proto.collector.logs.v1.LogsService",
)
_EMPTY_RESPONSE: Final = b""
_MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024


class OtlpReceiver:
    """Keeps the spans that exporters send, undecoded until somebody asks: decoding takes time from whoever measures.

    Attributes:
        port: The port it listens on.
    """

    def __init__(self) -> None:
        self.port = 0
        self._undecoded: list[bytes] = []
        self._decoded = ExportTraceServiceRequest()

    @property
    def endpoint(self) -> str:
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` must be for an exporter on this machine."""
        return f"http://127.0.0.1:{self.port}"

    def spans(self) -> list[Span]:
        """Every span so far, none twice unless it was sent twice."""
        scopes = [scope for resource in self._requests().resource_spans for scope in resource.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    def named(self, name: str) -> list[Span]:
        """The spans of this name so far."""
        return [span for span in self.spans() if span.name == name]

    def resources(self) -> list[Mapping[str, str]]:
        """Who sent: the textual attributes of every resource so far, one entry for each export of it."""
        return [
            {item.key: item.value.string_value for item in sent.resource.attributes}
            for sent in self._requests().resource_spans
        ]

    def text(self) -> str:
        """Everything so far as text, to look for what must not be in it."""
        return str(self._requests())

    def clear(self) -> None:
        """Forget what was sent so far."""
        self._undecoded.clear()
        self._decoded.Clear()

    async def export(self, request: bytes, _context: Any) -> bytes:
        """The handler of TraceService/Export."""
        self._undecoded.append(request)
        return _EMPTY_RESPONSE

    def _requests(self) -> ExportTraceServiceRequest:
        while self._undecoded:
            self._decoded.MergeFromString(self._undecoded.pop(0))
        return self._decoded


@asynccontextmanager
async def receiving(listen: str = "127.0.0.1:0") -> AsyncIterator[OtlpReceiver]:
    """A receiver that listens, until the block ends.

    Args:
        listen: host:port, without TLS; port 0 takes any that is free.

    Raises:
        RuntimeError: The port is taken, or the address is not this machine's.
    """
    receiver = OtlpReceiver()
    server = grpc.aio.server(
        options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES)]
    )
    server.add_generic_rpc_handlers(
        [_handler(_TRACES, receiver.export), *(_handler(service, _drop) for service in _DROPPED)]
    )
    receiver.port = server.add_insecure_port(listen)
    await server.start()
    try:
        yield receiver
    finally:
        await server.stop(None)


def _handler(service: str, export: Callable[[bytes, Any], Awaitable[bytes]]) -> grpc.GenericRpcHandler:
    # Without a deserializer the handler is handed the bytes.
    method: Any = grpc.unary_unary_rpc_method_handler(export)
    return grpc.method_handlers_generic_handler(service, {"Export": method})


async def _drop(_request: bytes, _context: Any) -> bytes:
    """Take what is no span, so that its sender has nothing to complain of."""
    return _EMPTY_RESPONSE
