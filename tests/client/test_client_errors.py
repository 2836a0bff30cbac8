import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, RetryInfo

import lorebank
from lorebank import AsyncClient, FieldViolation, LorebankError, PreconditionViolation
from lorebank.v1.store_pb2 import Failure as ItemFailure

CLASSES = {
    grpc.StatusCode.ABORTED: lorebank.Aborted,
    grpc.StatusCode.ALREADY_EXISTS: lorebank.AlreadyExists,
    grpc.StatusCode.DEADLINE_EXCEEDED: lorebank.DeadlineExceeded,
    grpc.StatusCode.FAILED_PRECONDITION: lorebank.FailedPrecondition,
    grpc.StatusCode.INTERNAL: lorebank.Internal,
    grpc.StatusCode.INVALID_ARGUMENT: lorebank.InvalidArgument,
    grpc.StatusCode.NOT_FOUND: lorebank.NotFound,
    grpc.StatusCode.PERMISSION_DENIED: lorebank.PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: lorebank.ResourceExhausted,
    grpc.StatusCode.UNAUTHENTICATED: lorebank.Unauthenticated,
    grpc.StatusCode.UNIMPLEMENTED: lorebank.Unimplemented,
    grpc.StatusCode.DATA_LOSS: LorebankError,
}


async def failure_of(script, failing, code, details=()):
    script.failures = [failing(code, "Do something else.", details)]
    async with AsyncClient(script.address) as client:
        with pytest.raises(LorebankError) as caught:
            await client.store("A fact.")
    return caught.value


@pytest.mark.parametrize("code", CLASSES)
async def test_every_code_has_its_class(script, failing, code):
    error = await failure_of(script, failing, code)
    assert (CLASSES[code], code, "Do something else.", "Do something else.") == (
        type(error),
        error.code,
        error.message,
        str(error),
    )


async def test_reason_and_metadata_are_those_of_the_error_info(script, failing):
    info = ErrorInfo(reason="ETAG_MISMATCH", domain="lorebank", metadata={"id": "a1B2c3D4"})
    error = await failure_of(script, failing, grpc.StatusCode.ABORTED, (info,))
    assert ("ETAG_MISMATCH", {"id": "a1B2c3D4"}) == (error.reason, dict(error.metadata))


async def test_fields_at_fault_are_named(script, failing):
    violation = BadRequest.FieldViolation(field="memory.content", description="is too short")
    details = (ErrorInfo(reason="INVALID_FIELD"), BadRequest(field_violations=[violation]))
    error = await failure_of(script, failing, grpc.StatusCode.INVALID_ARGUMENT, details)
    assert (FieldViolation("memory.content", "is too short"),) == error.violations


async def test_states_that_forbid_are_named(script, failing):
    violation = PreconditionFailure.Violation(type="SUPERSEDED", subject="a1B2c3D4", description="is old")
    details = (PreconditionFailure(violations=[violation]),)
    error = await failure_of(script, failing, grpc.StatusCode.FAILED_PRECONDITION, details)
    assert (PreconditionViolation("SUPERSEDED", "a1B2c3D4", "is old"),) == error.preconditions


async def test_the_time_to_wait_is_told(script, failing):
    details = (RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000)),)
    error = await failure_of(script, failing, grpc.StatusCode.RESOURCE_EXHAUSTED, details)
    assert 1.5 == error.retry_delay_s


async def test_details_that_cannot_be_read_are_left_out(script, failing):
    error = await failure_of(script, failing, grpc.StatusCode.NOT_FOUND, b"\xff\xff\xff")
    assert ("", (), None) == (error.reason, error.violations, error.retry_delay_s)


def test_a_failed_item_has_the_error_of_a_single_call():
    error = lorebank.error_of(ItemFailure(code=6, reason="KEY_TAKEN", message="Choose another key."))
    assert (lorebank.AlreadyExists, "KEY_TAKEN", "Choose another key.") == (type(error), error.reason, str(error))


def test_a_failed_item_of_an_unknown_code_is_an_error_all_the_same():
    assert LorebankError is type(lorebank.error_of(ItemFailure(code=99, message="?")))
