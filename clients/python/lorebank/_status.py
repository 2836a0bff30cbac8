"""From gRPC status to the errors of this package."""

from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, RetryInfo
from google.rpc.status_pb2 import Status

from lorebank.errors import (
    Aborted,
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    FieldViolation,
    Internal,
    InvalidArgument,
    LorebankError,
    NotFound,
    PermissionDenied,
    PreconditionViolation,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from lorebank.v1.store_pb2 import Failure

_DETAILS_KEY: Final = "grpc-status-details-bin"

_BY_CODE: Final[dict[grpc.StatusCode, type[LorebankError]]] = {
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.INTERNAL: Internal,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
}

_BY_NUMBER: Final[dict[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}


def from_rpc_error(error: grpc.aio.AioRpcError) -> LorebankError:
    """The error of this package that says what a failed call said; details that cannot be read are left out."""
    info, retry = ErrorInfo(), RetryInfo()
    bad_request, precondition = BadRequest(), PreconditionFailure()
    for detail in _details(error):
        for message in (info, retry, bad_request, precondition):
            if detail.Is(message.DESCRIPTOR):
                detail.Unpack(message)
    return _BY_CODE.get(error.code(), LorebankError)(
        error.details() or error.code().name,
        code=error.code(),
        reason=info.reason,
        metadata=info.metadata,
        violations=tuple(FieldViolation(v.field, v.description) for v in bad_request.field_violations),
        preconditions=tuple(PreconditionViolation(v.type, v.subject, v.description) for v in precondition.violations),
        retry_delay_s=retry.retry_delay.ToTimedelta().total_seconds() if retry.HasField("retry_delay") else None,
    )


def from_failure(failure: Failure) -> LorebankError:
    """The error that storing one item alone would have raised."""
    code = _BY_NUMBER.get(failure.code, grpc.StatusCode.UNKNOWN)
    return _BY_CODE.get(code, LorebankError)(failure.message, code=code, reason=failure.reason)


def _details(error: grpc.aio.AioRpcError) -> list[Any]:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return list(Status.FromString(value).details)
            except DecodeError:
                return []
    return []
