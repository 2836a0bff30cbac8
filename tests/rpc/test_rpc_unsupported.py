import pytest
from google.protobuf.descriptor import FieldDescriptor

from lorebank.v1 import find_pb2, on_duplicate_pb2, read_pb2, space_pb2, store_pb2
from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.rpc.unsupported import UNSUPPORTED, refuse_unsupported

ENTRIES = [
    pytest.param(request_class, entry, id=f"{request_class.DESCRIPTOR.name}.{entry.path}")
    for request_class, entries in UNSUPPORTED.items()
    for entry in entries
]


def with_field(request_class, path, value=None):
    """A request that sets one field, to ``value`` or to anything that is not its default."""
    request = request_class()
    message = request
    *parents, name = path.split(".")
    for parent in parents:
        message = getattr(message, parent)
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        getattr(message, name).append("x")
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        getattr(message, name).SetInParent()
    else:
        anything = "x" if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else 1
        setattr(message, name, anything if value is None else value)
    return request


@pytest.mark.parametrize(("request_class", "entry"), ENTRIES)
def test_a_field_that_is_not_honoured_is_refused_and_never_ignored(request_class, entry):
    for value in entry.values or [None]:
        with pytest.raises(InvalidArgumentError) as caught:
            refuse_unsupported(with_field(request_class, entry.path, value))
        assert ("FIELD_NOT_SUPPORTED", entry.path) == (caught.value.reason, caught.value.field)
        assert "leave it out" in caught.value.message


@pytest.mark.parametrize("request_class", UNSUPPORTED)
def test_a_request_that_sets_nothing_passes(request_class):
    refuse_unsupported(request_class())


def test_an_explicit_zero_of_an_optional_field_is_refused_too():
    with pytest.raises(InvalidArgumentError):
        refuse_unsupported(store_pb2.StoreRequest(similarity_threshold=0.0))


@pytest.mark.parametrize(
    "request_message",
    [
        store_pb2.StoreRequest(on_duplicate=on_duplicate_pb2.ON_DUPLICATE_KEEP_BOTH),
        find_pb2.FindRequest(query="x", selector={"tags_all": ["a"], "include_stale": True}, min_similarity=0.5),
        read_pb2.ListMemoriesRequest(selector={"states": [2]}),
        space_pb2.CreateSpaceRequest(
            space={"id": "a", "quality_policy": "none", "etag": "sent back", "packs": ["sent back"]}
        ),
    ],
)
def test_what_is_honoured_or_output_only_passes(request_message):
    refuse_unsupported(request_message)
