import pytest
from google.protobuf.struct_pb2 import ListValue, Struct, Value

from lorebank.v1 import find_pb2, key_pb2, memory_pb2, read_pb2, space_pb2, store_pb2
from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.rpc.validation import MAX_TIMESTAMP_S, MIN_TIMESTAMP_S, check_values


def stored(**memory):
    return store_pb2.StoreRequest(memory=memory_pb2.Memory(**memory))


def timed(seconds, nanos=0):
    request = stored()
    request.memory.valid_from.seconds = seconds
    request.memory.valid_from.nanos = nanos
    return request


def held(seconds, nanos=0):
    request = space_pb2.CreateSpaceRequest()
    request.space.half_life.seconds = seconds
    request.space.half_life.nanos = nanos
    return request


def with_attributes(value):
    return stored(attributes=Struct(fields={"a": value}))


@pytest.mark.parametrize(
    ("field", "request_message"),
    [
        ("memory.content", stored(content="a\x00b")),
        ("memory.tags[1]", stored(tags=["a", "\x00"])),
        ("memory.card.evidence[0].text", stored(card={"evidence": [{"text": "\x00"}]})),
        ("memory.applicability.environment['os']", stored(applicability={"environment": {"os": "\x00"}})),
        ("memory.applicability.environment", stored(applicability={"environment": {"\x00": "x"}})),
        ("memory.attributes['a']", with_attributes(Value(string_value="\x00"))),
        (
            "memory.attributes['a'][1]['b']",
            with_attributes(
                Value(
                    list_value=ListValue(
                        values=[
                            Value(bool_value=True),
                            Value(struct_value=Struct(fields={"b": Value(number_value=float("nan"))})),
                        ]
                    )
                )
            ),
        ),
        ("memory.attributes['a']", with_attributes(Value())),
        ("memory.confidence", stored(confidence=float("nan"))),
        ("memory.utility", stored(utility=float("inf"))),
        ("memory.kind", stored(kind=99)),
        ("memory.card.outcome", stored(card={"outcome": -1})),
        ("links[0].strength", store_pb2.StoreRequest(links=[{"strength": float("-inf")}])),
        ("selector.states[1]", find_pb2.FindRequest(selector={"states": [2, 77]})),
        ("selector.kinds[0]", find_pb2.FindRequest(selector={"kinds": [0]})),
        ("key.roles[0]", key_pb2.CreateKeyRequest(key={"roles": [0]})),
        ("view", read_pb2.ListMemoriesRequest(view=3)),
        ("memory.valid_from", timed(MAX_TIMESTAMP_S + 1)),
        ("memory.valid_from", timed(MIN_TIMESTAMP_S - 1)),
        ("memory.valid_from", timed(0, -1)),
        ("memory.valid_from", timed(0, 1_000_000_000)),
        ("space.half_life", held(1, -1)),
        ("space.half_life", held(400_000_000_000)),
    ],
)
def test_a_value_that_no_field_can_mean_is_refused_with_its_path(field, request_message):
    with pytest.raises(InvalidArgumentError) as caught:
        check_values(request_message)
    assert field == caught.value.field
    assert caught.value.message.startswith(field)


@pytest.mark.parametrize(
    "request_message",
    [
        store_pb2.StoreRequest(),
        stored(content="Grüße\n\u2028", confidence=0.0, kind=1, pinned=True, tags=["a"]),
        stored(attributes={"a": None, "b": [1, {"c": "d"}], "e": {}}),
        timed(MIN_TIMESTAMP_S),
        timed(MAX_TIMESTAMP_S, 999_999_999),
        held(-1, -1),
        held(0),
    ],
)
def test_good_values_pass(request_message):
    check_values(request_message)


def test_the_items_of_a_batch_are_left_to_be_checked_one_by_one():
    batch = store_pb2.BatchStoreRequest(requests=[stored(content="\x00")])
    check_values(batch)
    batch.space = "\x00"
    with pytest.raises(InvalidArgumentError):
        check_values(batch)
