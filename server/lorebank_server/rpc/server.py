"""The gRPC server: services, health and reflection behind one chain of interceptors."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import grpc
from grpc_health.v1 import health as health_checking
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lorebank.v1 import knowledge_service_pb2_grpc, memory_service_pb2_grpc, space_service_pb2_grpc
from lorebank_server.operations.authenticate import Authenticator
from lorebank_server.operations.services import Services
from lorebank_server.rpc.health import SERVICE_NAMES, HealthServicer, watch_storage
from lorebank_server.rpc.interceptors import chain
from lorebank_server.rpc.knowledge_servicer import KnowledgeServicer
from lorebank_server.rpc.memory_servicer import MemoryServicer
from lorebank_server.rpc.space_servicer import SpaceServicer

__all__ = ["MAX_MESSAGE_BYTES", "BoundServer", "build_server", "watch_storage"]

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024

_KEEPALIVE_INTERVAL_MS: Final = 60_000
_KEEPALIVE_TIMEOUT_MS: Final = 20_000
_LEAST_PING_INTERVAL_MS: Final = 10_000


class BoundServer(NamedTuple):
    """A server that holds its port and is not started yet.

    Attributes:
        server: To be started and stopped by whoever asked for it.
        port: The port it listens on, also when any was asked for.
        health: What it tells of its health; NOT_SERVING until ``watch_storage`` says otherwise.
    """

    server: grpc.aio.Server
    port: int
    health: HealthServicer


def build_server(
    *,
    services: Services,
    authenticator: Authenticator,
    listen: str,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    shared_port: bool = False,
) -> BoundServer:
    """Build the server and take its port.

    Args:
        services: What the operations work with.
        authenticator: Knows who may call.
        listen: host:port; port 0 takes any that is free.
        interceptors: Placed around all others, outermost first.
        max_message_bytes: Largest request and largest answer.
        shared_port: Listen on a port on which others listen who share it, instead of refusing to.

    Raises:
        RuntimeError: The port is taken, or the address is not this machine's.
    """
    server = grpc.aio.server(
        interceptors=chain(interceptors, authenticator=authenticator, max_message_bytes=max_message_bytes),
        options=[
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
            # Two servers on one port would share its calls without anybody noticing; serving processes of one server
            # are meant to, and their supervisor keeps others away.
            ("grpc.so_reuseport", int(shared_port)),
            ("grpc.keepalive_time_ms", _KEEPALIVE_INTERVAL_MS),
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_INTERVAL_MS),
        ],
    )
    memory_service_pb2_grpc.add_MemoryServiceServicer_to_server(MemoryServicer(services), server)
    knowledge_service_pb2_grpc.add_KnowledgeServiceServicer_to_server(KnowledgeServicer(), server)
    space_service_pb2_grpc.add_SpaceServiceServicer_to_server(SpaceServicer(services, authenticator), server)
    health = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflection.enable_server_reflection((*SERVICE_NAMES, health_checking.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return BoundServer(server, server.add_insecure_port(listen), health)
