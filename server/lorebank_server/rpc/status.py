"""The one table from domain errors to gRPC statuses, with the details that go with each.

Every status carries ``ErrorInfo`` of the domain "lorebank" in the trailing metadata ``grpc-status-details-bin``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Never

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from lorebank_server.domain import errors
from lorebank_server.domain.errors import LorebankError
from lorebank_server.telemetry.grpc_handlers import Context

ERROR_DOMAIN: Final = "lorebank"
DETAILS_KEY: Final = "grpc-status-details-bin"
INTERNAL_REASON: Final = "INTERNAL"
RETRY_SOON_S: Final = 1
RETRY_LATER_S: Final = 10

CODES: Final[Mapping[type[LorebankError], grpc.StatusCode]] = MappingProxyType(
    {
        errors.InvalidArgumentError: grpc.StatusCode.INVALID_ARGUMENT,
        errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
        errors.PermissionDeniedError: grpc.StatusCode.PERMISSION_DENIED,
        errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
        errors.AlreadyExistsError: grpc.StatusCode.ALREADY_EXISTS,
        errors.AbortedError: grpc.StatusCode.ABORTED,
        errors.FailedPreconditionError: grpc.StatusCode.FAILED_PRECONDITION,
        errors.ResourceExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
        errors.NotImplementedYetError: grpc.StatusCode.UNIMPLEMENTED,
        errors.StorageUnavailableError: grpc.StatusCode.UNAVAILABLE,
        errors.EmbedderUnavailableError: grpc.StatusCode.UNAVAILABLE,
        errors.VectorIndexUnavailableError: grpc.StatusCode.UNAVAILABLE,
    }
)
"""Every class of the tree; a class that is not here is the server's own fault."""

_RETRY_DELAY_S: Final[Mapping[grpc.StatusCode, int]] = MappingProxyType(
    {grpc.StatusCode.UNAVAILABLE: RETRY_SOON_S, grpc.StatusCode.RESOURCE_EXHAUSTED: RETRY_LATER_S}
)


def domain_error(error: Exception) -> LorebankError | None:
    """The error that the caller should hear of, or None when the server itself is at fault.

    Operations run tasks side by side, so what failed may come as a group. A group that holds nothing but domain
    errors stands for its first; one with anything else in it stands for a fault.
    """
    leaves = list(_leaves(error))
    first = leaves[0]
    known = all(type(leaf) in CODES for leaf in leaves)
    return first if known and isinstance(first, LorebankError) else None


def code_of(error: LorebankError) -> grpc.StatusCode:
    """The canonical code of a domain error."""
    return CODES[type(error)]


def number_of(code: grpc.StatusCode) -> int:
    """The number of a canonical code on the wire."""
    number: int = code.value[0]
    return number


def status_of(error: LorebankError) -> status_pb2.Status:
    """The status of a domain error, with all its details."""
    code = code_of(error)
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=dict(error.metadata))
    ]
    if isinstance(error, errors.InvalidArgumentError) and error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=error.message, reason=error.reason
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, errors.FailedPreconditionError):
        unmet = error_details_pb2.PreconditionFailure.Violation(
            type=error.reason, subject=error.subject, description=error.message
        )
        details.append(error_details_pb2.PreconditionFailure(violations=[unmet]))
    if code in _RETRY_DELAY_S:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.seconds = _RETRY_DELAY_S[code]
        details.append(retry)
    return _status(code, error.message, details)


def internal_status(request_id: str) -> status_pb2.Status:
    """The status of everything unforeseen: a fixed text, and the id under which the log has the detail."""
    message = f"Something went wrong inside the server. Report the request id {request_id} to who runs it."
    return _status(
        grpc.StatusCode.INTERNAL,
        message,
        [
            error_details_pb2.ErrorInfo(
                reason=INTERNAL_REASON, domain=ERROR_DOMAIN, metadata={"request_id": request_id}
            ),
            error_details_pb2.RequestInfo(request_id=request_id),
        ],
    )


async def abort(context: Context, status: status_pb2.Status) -> Never:
    """End the call with ``status``."""
    code = next(code for code in grpc.StatusCode if number_of(code) == status.code)
    await context.abort(code, status.message, ((DETAILS_KEY, status.SerializeToString()),))


def _status(code: grpc.StatusCode, message: str, details: list[Message]) -> status_pb2.Status:
    status = status_pb2.Status(code=number_of(code), message=message)
    for detail in details:
        status.details.add().Pack(detail)
    return status


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for held in error.exceptions:
            yield from _leaves(held)
    else:
        yield error
