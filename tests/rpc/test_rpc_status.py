import inspect

import grpc
import pytest
from google.rpc import error_details_pb2

from lorebank_server.domain import errors
from lorebank_server.rpc import status

CLASSES = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, errors.LorebankError) and found is not errors.LorebankError
]
EXPECTED = {
    errors.InvalidArgumentError: ("INVALID_ARGUMENT", {"ErrorInfo", "BadRequest"}),
    errors.UnauthenticatedError: ("UNAUTHENTICATED", {"ErrorInfo"}),
    errors.PermissionDeniedError: ("PERMISSION_DENIED", {"ErrorInfo"}),
    errors.NotFoundError: ("NOT_FOUND", {"ErrorInfo"}),
    errors.AlreadyExistsError: ("ALREADY_EXISTS", {"ErrorInfo"}),
    errors.AbortedError: ("ABORTED", {"ErrorInfo"}),
    errors.FailedPreconditionError: ("FAILED_PRECONDITION", {"ErrorInfo", "PreconditionFailure"}),
    errors.ResourceExhaustedError: ("RESOURCE_EXHAUSTED", {"ErrorInfo", "RetryInfo"}),
    errors.NotImplementedYetError: ("UNIMPLEMENTED", {"ErrorInfo"}),
    errors.StorageUnavailableError: ("UNAVAILABLE", {"ErrorInfo", "RetryInfo"}),
    errors.EmbedderUnavailableError: ("UNAVAILABLE", {"ErrorInfo", "RetryInfo"}),
    errors.VectorIndexUnavailableError: ("UNAVAILABLE", {"ErrorInfo", "RetryInfo"}),
}


def build(error_class):
    extra = {
        errors.InvalidArgumentError: {"field": "memory.title"},
        errors.FailedPreconditionError: {"subject": "a1B2c3D4"},
    }.get(error_class, {})
    return error_class("Do this next.", reason="SOME_REASON", metadata={"id": "a1B2c3D4"}, **extra)


def unpacked(found, detail_class):
    detail = detail_class()
    (packed,) = [entry for entry in found.details if entry.Is(detail.DESCRIPTOR)]
    packed.Unpack(detail)
    return detail


def test_the_table_has_every_class_of_the_tree():
    assert set(CLASSES) == set(status.CODES) == set(EXPECTED)


@pytest.mark.parametrize("error_class", CLASSES)
def test_each_class_has_its_code_and_details(error_class):
    code, details = EXPECTED[error_class]
    found = status.status_of(build(error_class))
    assert grpc.StatusCode[code].value[0] == found.code
    assert "Do this next." == found.message
    assert details == {packed.TypeName().rpartition(".")[2] for packed in found.details}
    info = unpacked(found, error_details_pb2.ErrorInfo)
    assert ("SOME_REASON", "lorebank", "a1B2c3D4") == (info.reason, info.domain, info.metadata["id"])


def test_a_bad_field_and_an_unmet_condition_are_named():
    bad = unpacked(status.status_of(build(errors.InvalidArgumentError)), error_details_pb2.BadRequest)
    assert ["memory.title"] == [violation.field for violation in bad.field_violations]
    unmet = unpacked(status.status_of(build(errors.FailedPreconditionError)), error_details_pb2.PreconditionFailure)
    assert [("SOME_REASON", "a1B2c3D4")] == [(entry.type, entry.subject) for entry in unmet.violations]


def test_a_wrong_request_without_a_single_field_has_no_bad_request():
    found = status.status_of(errors.InvalidArgumentError("No.", reason="MALFORMED_MESSAGE"))
    assert ["type.googleapis.com/google.rpc.ErrorInfo"] == [packed.type_url for packed in found.details]


def test_retries_are_told_to_wait():
    soon = unpacked(status.status_of(build(errors.StorageUnavailableError)), error_details_pb2.RetryInfo)
    later = unpacked(status.status_of(build(errors.ResourceExhaustedError)), error_details_pb2.RetryInfo)
    assert (1, 10) == (soon.retry_delay.seconds, later.retry_delay.seconds)


def test_an_internal_error_says_nothing_but_its_id():
    found = status.internal_status("r-1")
    assert 13 == found.code
    assert "r-1" in found.message
    assert "r-1" == unpacked(found, error_details_pb2.RequestInfo).request_id


def test_a_group_of_domain_errors_stands_for_its_first():
    first, second = build(errors.NotFoundError), build(errors.AbortedError)
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [first]), second])
    assert first is status.domain_error(group)
    assert first is status.domain_error(first)


@pytest.mark.parametrize("stranger", [ValueError("x"), errors.LorebankError("x", reason="X")])
def test_what_is_not_in_the_table_is_a_fault_even_beside_a_domain_error(stranger):
    assert status.domain_error(stranger) is None
    assert status.domain_error(ExceptionGroup("group", [build(errors.NotFoundError), stranger])) is None
