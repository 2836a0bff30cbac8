"""Texts and numbers that a memory cannot hold: refused by name, and nothing breaks."""

import grpc
import pytest
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from spaces_apart import store_request

from lorebank.v1 import card_pb2, memory_pb2, store_pb2
from lorebank.v1.provenance_pb2 import Applicability, Provenance

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture(autouse=True)
async def _unharmed(me):
    yield
    await me.still_works()


def nested(depth):
    struct = Struct()
    inner = struct
    for _ in range(depth):
        inner = inner.fields["deeper"].struct_value
    inner.fields["end"].bool_value = True
    return struct


def struct_of(**values):
    return Struct(fields={name: Value(number_value=value) for name, value in values.items()})


async def refused(me, field, request, *, saying=""):
    error = await me.refused(request)
    assert (INVALID, field) == (error.code, error.violations[0].field)
    assert error.metadata["field"] == field
    assert error.reason
    assert saying in error.message
    return error


@pytest.mark.parametrize(
    ("content", "saying"),
    [
        ("", "at least 5"),
        ("   \n\t   ", "at least 5"),
        ("four", "Send one self-contained fact"),
        ("  four  \n", "has 4 characters besides blanks"),
        ("x" * 8193, "has 8193 characters; at most 8192"),
        ("😀" * 8193, "has 8193 characters"),
        ("ж" * 8193, "has 8193 characters"),
        ("NUL is \x00 here.", "NUL character, which no store can keep; remove it"),
    ],
    ids=["empty", "blank", "four", "four-in-blanks", "8193", "8193-astral", "8193-cyrillic", "nul"],
)
async def test_content_that_says_nothing_or_too_much_is_refused(me, content, saying):
    await refused(me, "memory.content", store_request(content), saying=saying)


@pytest.mark.parametrize("letter", ["x", "😀", "ж", "é"])
@pytest.mark.parametrize("length", [5, 8192])
async def test_content_is_counted_in_code_points_whatever_their_bytes(me, letter, length):
    stored = await me.store(letter * length)
    assert letter * length == (await me.client.get(stored.id)).content


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1.1, -0.1, 1.0000001])
@pytest.mark.parametrize("field", ["confidence", "utility"])
async def test_a_share_outside_0_to_1_is_refused(me, field, value):
    await refused(me, f"memory.{field}", store_request(**{field: value}))


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("field", ["confidence", "utility"])
async def test_the_ends_of_0_to_1_are_kept(me, field, value):
    stored = await me.store("The staging database is wiped every Monday.", **{field: value})
    read = await me.client.get(stored.id)
    assert (True, value) == (read.HasField(field), getattr(read, field))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("memory.category", {"category": "Not A Slug"}),
        ("memory.collection", {"collection": "UPPER"}),
        ("memory.collection", {"collection": "a/b/c"}),
        ("memory.project", {"project": " shop"}),
        ("memory.project", {"project": "x" * 129}),
        ("memory.project", {"scope": memory_pb2.SCOPE_PROJECT}),
        ("memory.key", {"key": " key "}),
        ("memory.key", {"key": "x" * 201}),
        ("memory.title", {"title": "x" * 201}),
        ("memory.subject", {"subject": "x" * 201}),
        ("memory.context", {"context": "x" * 2001}),
        ("memory.tags", {"tags": [f"tag{n}" for n in range(33)]}),
        ("memory.tags", {"tags": ["x" * 65]}),
        ("memory.tags", {"tags": ["  "]}),
        ("memory.keywords", {"keywords": [f"word{n}" for n in range(33)]}),
        ("memory.keywords[1]", {"keywords": ["short", "x" * 65]}),
        ("memory.card.summary", {"card": card_pb2.Card(summary="x" * 2001)}),
        ("memory.card.gotchas", {"card": card_pb2.Card(gotchas=["x"] * 33)}),
        ("memory.card.triage.symptoms[0]", {"card": card_pb2.Card(triage={"symptoms": ["x" * 2001]})}),
        ("memory.card.evidence.uri[0]", {"card": card_pb2.Card(evidence=[{"uri": "x" * 2001}])}),
        ("memory.applicability.versions", {"applicability": Applicability(versions=["1"] * 17)}),
        ("memory.applicability.repo", {"applicability": Applicability(repo="x" * 201)}),
        ("memory.provenance.run", {"provenance": Provenance(run="x" * 201)}),
        ("memory.provenance.sources", {"provenance": Provenance(sources=["x"] * 33)}),
        ("memory.attributes", {"attributes": struct_of(big=2.0**53)}),
        ("memory.attributes", {"attributes": struct_of(big=float(2**53 + 1))}),
        ("memory.attributes", {"attributes": nested(9)}),
        ("memory.attributes", {"attributes": Struct(fields={"long": Value(string_value="x" * 16_385)})}),
        ("memory.attributes['bad']", {"attributes": struct_of(bad=float("nan"))}),
        ("memory.attributes['bad']", {"attributes": struct_of(bad=float("inf"))}),
        ("memory.attributes['none']", {"attributes": Struct(fields={"none": Value()})}),
        ("memory.valid_from", {"valid_from": Timestamp(seconds=253_402_300_800)}),
        ("memory.valid_from", {"valid_from": Timestamp(seconds=-62_135_596_801)}),
        ("memory.valid_until", {"valid_until": Timestamp(seconds=1, nanos=1_000_000_000)}),
        ("memory.valid_until", {"valid_from": Timestamp(seconds=10), "valid_until": Timestamp(seconds=9)}),
        ("memory.valid_until", {"valid_from": Timestamp(seconds=10), "valid_until": Timestamp(seconds=10)}),
        ("memory.kind", {"kind": 99}),
        ("memory.polarity", {"polarity": -1}),
        ("memory.provenance.origin", {"provenance": Provenance(origin=77)}),
        ("memory.card.outcome", {"card": card_pb2.Card(outcome=50)}),
    ],
)
async def test_a_field_out_of_its_limits_is_refused_by_name(me, field, values):
    await refused(me, field, store_request(**values))


@pytest.mark.parametrize(
    "values",
    [
        {"tags": [f"tag{n}" for n in range(32)]},
        {"tags": ["x" * 64]},
        {"tags": ["Twice", "twice ", "TWICE"] * 20},
        {"title": "😀" * 200},
        {"attributes": nested(7)},
        {"attributes": struct_of(whole=float(2**53 - 1), negative=-float(2**53 - 1), small=0.1)},
        {"attributes": Struct(fields={"list": Value(list_value=ListValue(values=[Value(null_value=0)]))})},
        {"valid_from": Timestamp(seconds=-62_135_596_800), "valid_until": Timestamp(seconds=253_402_300_799)},
    ],
)
async def test_a_field_at_its_limit_is_kept(me, values):
    stored = (await me.call(store_request(**values))).memory
    read = await me.client.get(stored.id)
    assert stored == read


async def test_structured_values_nested_beyond_any_use_are_refused_and_do_no_harm(me):
    data = b""
    for _ in range(200):
        entry = b"\x0a\x01d\x12" + _with_length(b"\x2a" + _with_length(data))
        data = b"\x0a" + _with_length(entry)
    request = b"\x12" + _with_length(b"\x52" + _with_length(b"A fact of note.") + b"\xd2\x01" + _with_length(data))
    with pytest.raises(Exception, match=r"MALFORMED|nested|no valid message") as caught:
        await me.send("Store", request)
    assert INVALID == caught.value.code


@pytest.mark.parametrize(
    ("slug", "nearest"), [("preferense", "preference"), ("agent-memory/patern", "agent-memory/pattern"), ("zzz", "/")]
)
async def test_an_unknown_category_is_refused_with_its_nearest_neighbours(me, slug, nearest):
    error = await refused(me, "memory.category", store_request(category=slug), saying="Nearest known: ")
    assert "UNKNOWN_CATEGORY" == error.reason
    assert nearest in error.metadata["nearest"]
    assert nearest in error.message


@pytest.mark.parametrize(
    ("field", "link"),
    [
        ("links[0].type", {"type": "Not A Type", "target": "abcd1234"}),
        ("links[0].type", {"type": "supersedes", "target": "abcd1234"}),
        ("links[0].type", {"target": "abcd1234"}),
        ("links[0].target", {"type": "about"}),
        ("links[0].strength", {"type": "about", "target": "abcd1234", "strength": 1.5}),
        ("links[0].context", {"type": "about", "target": "abcd1234", "context": "x" * 2001}),
    ],
)
async def test_a_link_that_cannot_be_is_refused(me, field, link):
    await refused(me, field, store_request(links=[store_pb2.StoreRequest.Link(**link)]))


async def test_too_many_links_are_refused(me):
    links = [store_pb2.StoreRequest.Link(type="about", target=f"target{n:02}") for n in range(65)]
    await refused(me, "links", store_request(links=links))


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x06\x52\x04\xff\xfe\xfd\xfc",
        b"\x12\x06\x52\x04\xed\xa0\x80x",
        store_request().SerializeToString()[:-3],
        b"\xff" * 64,
        b"\x12\xff\xff\xff\xff\x7f",
        b"{}",
    ],
    ids=["invalid-utf8", "surrogate", "truncated", "garbage", "endless", "json"],
)
async def test_bytes_that_are_no_message_are_refused_in_words(me, data):
    with pytest.raises(Exception, match=r"no valid message of this procedure") as caught:
        await me.send("Store", data)
    assert (INVALID, "MALFORMED_MESSAGE") == (caught.value.code, caught.value.reason)


async def test_a_message_of_5_mebibytes_is_refused_and_the_next_one_taken(me):
    with pytest.raises(Exception, match=r"(?i)larger than max") as caught:
        await me.call(store_request("x" * (5 * 1024 * 1024)))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == caught.value.code


def _with_length(data):
    length, prefix = len(data), b""
    while length >= 128:
        prefix += bytes([length % 128 + 128])
        length //= 128
    return prefix + bytes([length]) + data
