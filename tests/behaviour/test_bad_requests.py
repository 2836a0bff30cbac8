"""Requests that cannot be answered: the right code, the field at fault, what to do, and nothing breaks."""

import base64
import json

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from spaces_apart import store_request

from lorebank.v1 import find_pb2, graph_pb2, read_pb2, revision_pb2, selector_pb2, store_pb2, vote_pb2, write_pb2
from lorebank.v1.memory_pb2 import Memory
from lorebank_server.operations import paging

INVALID = grpc.StatusCode.INVALID_ARGUMENT
UPVOTE, CITE = vote_pb2.VoteRequest.SIGNAL_UPVOTE, vote_pb2.VoteRequest.SIGNAL_CITE
NOBODY = "zzzzzzzz"


@pytest.fixture(autouse=True)
async def _unharmed(me):
    yield
    await me.still_works()


def find(**fields):
    return find_pb2.FindRequest(**{"query": "staging", **fields})


def listing(**fields):
    return read_pb2.ListMemoriesRequest(**fields)


def selecting(**fields):
    return selector_pb2.Selector(**fields)


def ballots(*signals, run=""):
    cast = [vote_pb2.VoteRequest.Ballot(id=NOBODY, signal=signal) for signal in signals]
    return vote_pb2.VoteRequest(ballots=cast, run=run)


@pytest.mark.parametrize(
    ("field", "request_message"),
    [
        ("query", find_pb2.FindRequest()),
        ("query", find(query="   ")),
        ("query", find(query="x" * 8193)),
        ("query", find(query="nul \x00")),
        ("limit", find(limit=-1)),
        ("limit", find(limit=101)),
        ("min_similarity", find(min_similarity=1.1)),
        ("min_similarity", find(min_similarity=-0.1)),
        ("min_similarity", find(min_similarity=float("nan"))),
        ("min_similarity", find(min_similarity=0.5, mode=find_pb2.FindRequest.MODE_LEXICAL)),
        ("mode", find(mode=42)),
        ("view", find(view=42)),
        ("selector.kinds[0]", find(selector=selecting(kinds=[0]))),
        ("selector.states[1]", find(selector=selecting(states=[2, 99]))),
        ("selector.scopes[0]", find(selector=selecting(scopes=[9]))),
        ("selector.polarity", find(selector=selecting(polarity=9))),
        ("selector.categories", find(selector=selecting(categories=["No Slug"]))),
        ("selector.categories", find(selector=selecting(categories=["unheard-of"]))),
        ("selector.collections", find(selector=selecting(collections=["No Slug"]))),
        ("selector.project", find(selector=selecting(project="no project"))),
        ("selector.tags_all", find(selector=selecting(tags_all=["x" * 65]))),
        ("selector.tags_any", find(selector=selecting(tags_any=[" "]))),
        ("selector.ids", find(selector=selecting(ids=["x"] * 501))),
        ("selector.subjects", find(selector=selecting(subjects=["x" * 201]))),
        (
            "selector.created_before",
            find(selector=selecting(created_after=Timestamp(seconds=9), created_before=Timestamp(seconds=9))),
        ),
        ("selector.created_after", find(selector=selecting(created_after=Timestamp(seconds=2**60)))),
        ("page_size", listing(page_size=-1)),
        ("order_by", listing(order_by="content")),
        ("order_by", listing(order_by="create_time sideways")),
        ("order_by", listing(order_by="create_time; drop table memories")),
        ("page_size", revision_pb2.ListRevisionsRequest(id=NOBODY, page_size=-1)),
        ("id", revision_pb2.ListRevisionsRequest()),
        ("id", read_pb2.GetMemoryRequest()),
        ("uid", read_pb2.GetMemoryRequest(id=NOBODY, uid="also")),
        ("uid", read_pb2.GetMemoryRequest(uid="not-a-uuid")),
        ("key", read_pb2.GetMemoryRequest(key="x" * 201)),
        ("ids", read_pb2.BatchGetMemoriesRequest()),
        ("ids", read_pb2.BatchGetMemoriesRequest(ids=[str(n) for n in range(501)])),
        ("id", write_pb2.DeleteMemoryRequest()),
        ("id", write_pb2.UndeleteMemoryRequest()),
        ("memory.id", write_pb2.UpdateMemoryRequest(memory=Memory(content="No id is here."))),
        ("memory", write_pb2.UpdateMemoryRequest(memory=Memory(id=NOBODY))),
        ("ids", store_pb2.SupersedeRequest(memory=Memory(content="No ids are here."))),
        ("ids", store_pb2.SupersedeRequest(ids=[f"id{n:06}" for n in range(101)], memory=Memory(content="Too many."))),
        ("reason", store_pb2.SupersedeRequest(ids=[NOBODY], memory=Memory(content="New words."), reason="x" * 1001)),
        ("requests", store_pb2.BatchStoreRequest()),
        ("requests", store_pb2.BatchStoreRequest(requests=[store_pb2.StoreRequest()] * 501)),
        ("ballots", vote_pb2.VoteRequest()),
        ("ballots", ballots(*[UPVOTE] * 101)),
        ("ballots[1].signal", ballots(UPVOTE, 0)),
        ("ballots[0].signal", ballots(42)),
        ("run", ballots(CITE)),
        ("run", ballots(UPVOTE, run="x" * 201)),
        (
            "ballots[0].reason",
            vote_pb2.VoteRequest(ballots=[vote_pb2.VoteRequest.Ballot(id=NOBODY, signal=UPVOTE, reason="x" * 1001)]),
        ),
        ("ids", graph_pb2.GraphRequest()),
        ("ids", graph_pb2.GraphRequest(ids=[f"id{n:06}" for n in range(101)])),
        ("hops", graph_pb2.GraphRequest(ids=[NOBODY], hops=-1)),
        ("hops", graph_pb2.GraphRequest(ids=[NOBODY], hops=4)),
        ("max_nodes", graph_pb2.GraphRequest(ids=[NOBODY], max_nodes=-1)),
        ("max_nodes", graph_pb2.GraphRequest(ids=[NOBODY], max_nodes=501)),
        ("min_strength", graph_pb2.GraphRequest(ids=[NOBODY], min_strength=1.5)),
        ("request_id", store_request(request_id="not-a-uuid")),
        ("request_id", store_pb2.SupersedeRequest(ids=[NOBODY], memory=Memory(content="Words."), request_id="x")),
        ("request_id", write_pb2.UpdateMemoryRequest(memory=Memory(id=NOBODY, content="Words."), request_id="x")),
        ("request_id", vote_pb2.VoteRequest(request_id="1234")),
    ],
)
async def test_a_field_at_fault_is_named_with_what_to_do(me, field, request_message):
    error = await me.refused(request_message)
    assert INVALID == error.code
    assert field == error.violations[0].field
    assert error.reason
    assert error.message.endswith(".")


@pytest.mark.parametrize(
    "request_message",
    [
        read_pb2.GetMemoryRequest(id=NOBODY),
        read_pb2.GetMemoryRequest(id="' or 1=1 --"),
        read_pb2.GetMemoryRequest(uid="0190a5c4-7d10-7b3e-9d43-6f1f0c2b8a11"),
        read_pb2.GetMemoryRequest(key="nobody has it"),
        find_pb2.FindRequest(similar_to=NOBODY),
        graph_pb2.GraphRequest(ids=[NOBODY]),
        revision_pb2.ListRevisionsRequest(id=NOBODY),
        write_pb2.UpdateMemoryRequest(memory=Memory(id=NOBODY, content="New words for nobody.")),
        write_pb2.DeleteMemoryRequest(id=NOBODY),
        write_pb2.UndeleteMemoryRequest(id=NOBODY),
        store_pb2.SupersedeRequest(ids=[NOBODY], memory=Memory(content="New words for nobody.")),
        ballots(UPVOTE),
        store_request(links=[store_pb2.StoreRequest.Link(type="about", target=NOBODY)]),
    ],
)
async def test_what_is_not_there_is_not_found_on_every_procedure(me, request_message):
    error = await me.refused(request_message)
    assert (grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND") == (error.code, error.reason)
    assert "that you can see" in error.message


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nonsense", "INVALID_FIELD_MASK"),
        ("card.nonsense", "INVALID_FIELD_MASK"),
        ("", "INVALID_FIELD_MASK"),
        ("*", "INVALID_FIELD_MASK"),
        ("state", "INVALID_FIELD_MASK"),
        ("revision", "INVALID_FIELD_MASK"),
        ("quality.strength", "INVALID_FIELD_MASK"),
        ("applicability.fingerprint", "INVALID_FIELD_MASK"),
        ("key", "IMMUTABLE_FIELD"),
        ("scope", "IMMUTABLE_FIELD"),
        ("project", "IMMUTABLE_FIELD"),
        ("expire_time", "FIELD_NOT_SUPPORTED"),
    ],
)
async def test_a_mask_that_names_what_cannot_change_is_refused(me, path, reason):
    stored = await me.store("The staging database is wiped every Monday.")
    error = await me.refused(
        write_pb2.UpdateMemoryRequest(
            memory=Memory(id=stored.id, content="Other words."), update_mask=FieldMask(paths=[path])
        )
    )
    assert (INVALID, reason, "update_mask") == (error.code, error.reason, error.violations[0].field)
    assert stored == await me.client.get(stored.id)


async def test_a_fixed_field_with_another_value_is_refused_without_a_mask_too(me):
    stored = await me.store("The staging database is wiped every Monday.", key="staging")
    error = await me.refused(write_pb2.UpdateMemoryRequest(memory=Memory(id=stored.id, key="other")))
    assert (INVALID, "IMMUTABLE_FIELD", "memory.key") == (error.code, error.reason, error.violations[0].field)


@pytest.mark.parametrize("procedure", ["update", "delete", "undelete"])
async def test_a_stale_etag_is_aborted_and_told_the_current_revision(me, procedure):
    stored = await me.store("The staging database is wiped every Monday.")
    await me.client.update(stored.id, content="The staging database is wiped every Friday.")
    error = await me.refused(
        {
            "update": write_pb2.UpdateMemoryRequest(memory=Memory(id=stored.id, content="Lost.", etag=stored.etag)),
            "delete": write_pb2.DeleteMemoryRequest(id=stored.id, etag=stored.etag),
            "undelete": write_pb2.UndeleteMemoryRequest(id=stored.id, etag=stored.etag),
        }[procedure]
    )
    assert (grpc.StatusCode.ABORTED, "ETAG_MISMATCH") == (error.code, error.reason)
    assert {"id": stored.id, "revision": "2"} == dict(error.metadata)
    assert 2 == (await me.client.get(stored.id)).revision


async def test_a_request_id_with_another_body_is_refused_on_every_write(me):
    stored = await me.store("The staging database is wiped every Monday.")
    request_id = "0190a5c4-7d10-7b3e-9d43-6f1f0c2b8a11"
    requests = [
        store_request("A fact under a request id.", request_id=request_id),
        store_request("Another fact under it.", request_id=request_id),
        write_pb2.UpdateMemoryRequest(memory=Memory(id=stored.id, content="Correction."), request_id=request_id),
        vote_pb2.VoteRequest(ballots=[{"id": stored.id, "signal": UPVOTE}], request_id=request_id),
        store_pb2.SupersedeRequest(ids=[stored.id], memory=Memory(content="Successor."), request_id=request_id),
    ]
    await me.call(requests[0])
    for request in requests[1:]:
        error = await me.refused(request)
        assert (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED") == (error.code, error.reason)
        assert "Send a new request_id" in error.message
    assert stored == await me.client.get(stored.id)


def _forged(**position):
    query = ["list"]
    return paging.encode(position, query=query)


@pytest.mark.parametrize(
    "token",
    [
        "garbage",
        "ж" * 10,
        "!!!!",
        "e30",
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
        base64.urlsafe_b64encode(json.dumps({"q": 1}).encode()).decode(),
        base64.urlsafe_b64encode(b'"text"').decode(),
        _forged(value=1.0, uid="x", now="y", total=1),
    ],
    ids=["garbage", "cyrillic", "punctuation", "empty-object", "deep", "number", "text", "of-another-query"],
)
@pytest.mark.parametrize("procedure", ["list", "revisions"])
async def test_a_token_that_is_none_is_refused(me, procedure, token):
    stored = await me.store("The staging database is wiped every Monday.")
    error = await me.refused(
        listing(page_token=token)
        if procedure == "list"
        else revision_pb2.ListRevisionsRequest(id=stored.id, page_token=token)
    )
    assert (INVALID, "INVALID_PAGE_TOKEN", "page_token") == (error.code, error.reason, error.violations[0].field)


@pytest.mark.parametrize(
    "change",
    [
        {"order_by": "update_time"},
        {"order_by": "create_time asc"},
        {"selector": selecting(include_stale=True)},
        {"selector": selecting(tags_any=["other"])},
    ],
)
async def test_a_token_of_another_query_is_refused(me, change):
    for number in range(3):
        await me.store(f"Fact number {number}.")
    page = await me.call(listing(page_size=2))
    error = await me.refused(listing(page_size=2, page_token=page.next_page_token, **change))
    assert (INVALID, "INVALID_PAGE_TOKEN") == (error.code, error.reason)


async def test_a_token_of_another_caller_is_refused(here, me):
    other = await here.caller("other", role="admin")
    for number in range(3):
        await me.store(f"Fact number {number}.")
    page = await me.call(listing(page_size=2))
    error = await other.refused(listing(page_size=2, page_token=page.next_page_token))
    assert (INVALID, "INVALID_PAGE_TOKEN") == (error.code, error.reason)


@pytest.mark.parametrize(
    "changes",
    [
        {"value": "abc"},
        {"value": None},
        {"uid": "abc"},
        {"uid": 5},
        {"now": "yesterday"},
        {"now": 7},
        {"total": "many"},
        {"total": 2**40},
        {"value": 0.0},
        {"now": "2026-01-01T00:00:00"},
        {"extra": True},
    ],
)
async def test_a_token_that_was_tampered_with_is_refused(me, changes):
    for number in range(3):
        await me.store(f"Fact number {number}.")
    page = await me.call(listing(page_size=2))
    token = page.next_page_token
    position = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    forged = base64.urlsafe_b64encode(json.dumps({**position, **changes}).encode()).decode().rstrip("=")
    error = await me.refused(listing(page_size=2, page_token=forged))
    assert (INVALID, "INVALID_PAGE_TOKEN") == (error.code, error.reason)


async def test_a_page_larger_than_the_largest_counts_as_the_largest(me):
    await me.store("The staging database is wiped every Monday.")
    assert 1 == len((await me.call(listing(page_size=2**31 - 1))).memories)
