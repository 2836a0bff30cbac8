"""The chain around every procedure of the contract; health and reflection pass through most of it untouched."""

from collections.abc import Sequence

import grpc

from lorebank_server.operations.authenticate import Authenticator
from lorebank_server.rpc.interceptors.admission import AdmissionInterceptor
from lorebank_server.rpc.interceptors.authentication import AuthenticationInterceptor
from lorebank_server.rpc.interceptors.deadline import DeadlineInterceptor
from lorebank_server.rpc.interceptors.errors import ErrorInterceptor
from lorebank_server.rpc.interceptors.unserved import UnservedInterceptor

__all__ = ["chain"]


def chain(
    outermost: Sequence[grpc.aio.ServerInterceptor], *, authenticator: Authenticator, max_message_bytes: int
) -> list[grpc.aio.ServerInterceptor]:
    """All interceptors in the order in which a call meets them.

    Args:
        outermost: What surrounds the rest, such as tracing.
        authenticator: Knows who may call.
        max_message_bytes: Largest answer that may be sent.
    """
    return [
        *outermost,
        ErrorInterceptor(),  # whatever fails below becomes a status
        DeadlineInterceptor(),  # how long the caller waits
        AuthenticationInterceptor(authenticator),  # who calls, and whether the role suffices
        AdmissionInterceptor(max_message_bytes=max_message_bytes),  # bytes, space and fields of the request
        UnservedInterceptor(),  # procedures without an implementation
    ]
