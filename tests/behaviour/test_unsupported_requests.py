"""Fields that the contract has and this server does not honour yet: refused over the wire, never ignored."""

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from lorebank.v1 import memory_service_pb2, space_pb2
from lorebank_server.rpc.unsupported import UNSUPPORTED

SERVED = memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"].methods_by_name
CASES = [
    pytest.param(request_class, entry, value, id=f"{request_class.DESCRIPTOR.name}.{entry.path}-{value}")
    for request_class, entries in UNSUPPORTED.items()
    if request_class is not space_pb2.CreateSpaceRequest
    for entry in entries
    for value in (sorted(entry.values) or [None])
]


def with_value(request_class, path, value):
    request = request_class()
    message = request
    *parents, name = path.split(".")
    for parent in parents:
        message = getattr(message, parent)
    field = message.DESCRIPTOR.fields_by_name[name]
    text = field.cpp_type == FieldDescriptor.CPPTYPE_STRING
    if field.is_repeated:
        getattr(message, name).append("x")
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        getattr(message, name).SetInParent()
    else:
        setattr(message, name, value if value is not None else "x" if text else 1)
    return request


@pytest.mark.parametrize(("request_class", "entry", "value"), CASES)
async def test_a_field_that_is_not_honoured_is_refused_and_never_ignored(me, request_class, entry, value):
    error = await me.refused(with_value(request_class, entry.path, value))
    assert grpc.StatusCode.INVALID_ARGUMENT == error.code
    assert ("FIELD_NOT_SUPPORTED", entry.path) == (error.reason, error.violations[0].field)
    assert f"does not honour {'this value of ' if entry.values else ''}{entry.path}: leave it out" in error.message


def test_every_such_request_is_one_that_is_served():
    names = {name.DESCRIPTOR.name.removesuffix("Request") for name in UNSUPPORTED} - {"CreateSpace"}
    assert set() == names - set(SERVED)
