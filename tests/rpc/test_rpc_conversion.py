from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from rpc_doubles import NOW, UID, a_memory

from lorebank.v1 import find_pb2, key_pb2, memory_pb2, read_pb2, selector_pb2, space_pb2, store_pb2, vote_pb2
from lorebank_server.domain import memory as domain
from lorebank_server.domain.errors import AlreadyExistsError, InvalidArgumentError
from lorebank_server.domain.fingerprints import applicability_fingerprint
from lorebank_server.domain.keys import ApiKey
from lorebank_server.domain.principal import Role
from lorebank_server.domain.ranking import Mode, Score
from lorebank_server.domain.selector import Selector
from lorebank_server.operations.find import FindResult, Hit
from lorebank_server.operations.graph import GraphResult, Node
from lorebank_server.operations.list_memories import RevisionPage
from lorebank_server.operations.spaces import default_space
from lorebank_server.operations.store import Result, StoreResult
from lorebank_server.rpc.conversion import keys, reads, spaces, values, writes
from lorebank_server.rpc.conversion.drafts import to_draft, write_draft
from lorebank_server.rpc.conversion.memories import from_memory
from lorebank_server.rpc.conversion.requests import request_identity, require, to_uid
from lorebank_server.rpc.conversion.selectors import to_selector

TIMES = st.datetimes(timezones=st.just(UTC))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LISTS = st.lists(TEXTS, max_size=3).map(tuple)
SHARES = st.floats(0, 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
EVIDENCE = st.builds(domain.Evidence, TEXTS, TEXTS, TEXTS, st.none() | TIMES)
TRIAGE = st.builds(domain.Triage, LISTS, LISTS, LISTS, LISTS, LISTS)
CARDS = st.builds(
    domain.Card,
    summary=TEXTS,
    when_to_use=LISTS,
    how_to_apply=LISTS,
    gotchas=LISTS,
    evidence=st.lists(EVIDENCE, max_size=2).map(tuple),
    outcome=st.sampled_from(domain.Outcome),
    anti_pattern=TEXTS,
    triage=st.none() | TRIAGE.filter(lambda triage: triage != domain.Triage()),
    signals=LISTS,
    invariants=LISTS,
).filter(lambda card: card != domain.Card())
PLACES = st.builds(
    domain.Applicability, TEXTS, TEXTS, TEXTS, TEXTS, LISTS, st.dictionaries(TEXTS, TEXTS, max_size=2)
).filter(lambda place: place != domain.Applicability())
DRAFTS = st.builds(
    domain.Draft,
    content=TEXTS,
    title=TEXTS,
    card=st.none() | CARDS,
    context=TEXTS,
    keywords=LISTS,
    kind=st.sampled_from(domain.Kind),
    polarity=st.sampled_from(domain.Polarity),
    category=TEXTS,
    collection=TEXTS,
    subject=TEXTS,
    tags=LISTS,
    attributes=st.dictionaries(TEXTS, JSON, max_size=3),
    scope=st.sampled_from(domain.Scope),
    project=TEXTS,
    key=TEXTS,
    applicability=st.none() | PLACES,
    provenance=st.builds(
        domain.Provenance,
        st.sampled_from(domain.Origin),
        st.sampled_from(domain.Author),
        TEXTS,
        TEXTS,
        TEXTS,
        LISTS,
    ),
    confidence=st.none() | SHARES,
    utility=st.none() | SHARES,
    pinned=st.booleans(),
    valid_from=st.none() | TIMES,
    valid_until=st.none() | TIMES,
)


@given(DRAFTS)
def test_a_draft_survives_the_wire(draft):
    message = memory_pb2.Memory()
    write_draft(draft, message)
    assert draft == to_draft(memory_pb2.Memory.FromString(message.SerializeToString()))


@given(TIMES)
def test_times_survive_to_the_microsecond(time):
    stamp = Timestamp()
    values.set_time(stamp, time)
    assert time == values.to_time(stamp) == stamp.ToDatetime(UTC)


def test_nanoseconds_are_cut_off_and_zones_are_minded():
    cut = values.to_time(Timestamp(seconds=-1, nanos=999_999_999))
    assert datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) == cut
    stamp = Timestamp()
    values.set_time(stamp, datetime.fromisoformat("2026-01-01T01:00:00+01:00"))
    assert "2026-01-01T00:00:00Z" == stamp.ToJsonString()


def test_the_epoch_is_present_and_no_time_is_absent():
    message = memory_pb2.Memory()
    values.set_time(message.valid_from, datetime(1970, 1, 1, tzinfo=UTC))
    values.set_time(message.valid_until, None)
    assert (True, False) == (message.HasField("valid_from"), message.HasField("valid_until"))


def test_whole_numbers_of_free_form_values_stay_floats():
    found = to_draft(memory_pb2.Memory(attributes={"a": 1, "b": [2]})).attributes
    assert {"a": 1.0, "b": [2.0]} == found
    assert isinstance(found["a"], float)


def test_parts_that_say_nothing_count_as_absent():
    message = memory_pb2.Memory(card={"triage": {}}, applicability={"fingerprint": "ab"}, provenance={"trust": 3})
    assert domain.Draft(content="") == replace(to_draft(message), card=None)
    assert to_draft(memory_pb2.Memory(card={})).card is None


def test_a_full_memory_has_what_the_service_knows():
    where = domain.Applicability(repo="r")
    memory = a_memory(
        draft=domain.Draft(content="c" * 9, applicability=where, confidence=0.5), superseded_by="b9", delete_time=NOW
    )
    message = from_memory(memory)
    assert ("a1B2c3D4", str(UID), memory.etag, 2, 3) == (
        message.id,
        message.uid,
        message.etag,
        message.state,
        message.revision,
    )
    assert ("ann", ["b1", "b2"], "b9", "00ff") == (
        message.owner,
        list(message.supersedes),
        message.superseded_by,
        message.content_hash,
    )
    assert applicability_fingerprint(where) == message.applicability.fingerprint
    assert (0.5, 0.7, 0.4, 1, 2, 3, 4, 5, "bayes-v2") == (
        message.quality.retention,
        message.quality.reputation,
        message.quality.strength,
        message.quality.upvotes,
        message.quality.downvotes,
        message.quality.citations,
        message.quality.successes,
        message.quality.failures,
        message.quality.policy,
    )
    assert (9, NOW) == (message.usage.use_count, values.to_time(message.usage.last_used_time))
    assert (NOW, False) == (values.to_time(message.delete_time), message.HasField("validate_time"))


def test_a_summary_leaves_out_what_the_contract_says():
    draft = domain.Draft(
        content="c" * 9,
        title="t",
        card=domain.Card(summary="s"),
        context="why",
        keywords=("k",),
        attributes={"a": 1.0},
        tags=("t",),
        applicability=domain.Applicability(repo="r"),
        provenance=domain.Provenance(agent="me"),
    )
    full = from_memory(a_memory(draft=draft))
    summary = from_memory(a_memory(draft=draft), memory_pb2.VIEW_SUMMARY)
    left_out = {field.name for field, _ in full.ListFields()} - {field.name for field, _ in summary.ListFields()}
    assert {"card", "context", "keywords", "attributes", "applicability", "provenance", "usage"} == left_out


def test_a_revision_is_without_quality_and_usage():
    revision = domain.Revision(a_memory(), domain.Change.UPDATE, "ann", "typo", "run-1", "talk-1", NOW)
    (message,) = reads.from_revision_page(RevisionPage((revision,), "next")).revisions
    assert (3, 2, "ann", "typo", "run-1", "talk-1") == (
        message.revision,
        message.change,
        message.actor,
        message.reason,
        message.run,
        message.conversation,
    )
    assert (False, False, "a1B2c3D4") == (
        message.memory.HasField("quality"),
        message.memory.HasField("usage"),
        message.memory.id,
    )


def test_a_hit_carries_every_part_of_its_score():
    memory = a_memory()
    score = Score(0.8, 2.0, 0.9, 4.0, 0.65, memory.quality)
    response = reads.from_find_result(FindResult((Hit(memory, score, ("boil",)),), 2, ("slow",)), 0)
    (hit,) = response.hits
    assert (2, ["slow"], ["boil"], "a1B2c3D4") == (
        response.below_threshold,
        list(response.degraded),
        list(hit.matched),
        hit.memory.id,
    )
    parts = hit.parts
    assert hit.score == pytest.approx(parts.fused * (0.25 + 1.5 * parts.strength) * parts.applicability)
    assert (0.8, 2.0, 0.9, 4.0, 0.5, 0.7, 6.0) == (
        parts.similarity,
        parts.lexical,
        parts.max_similarity,
        parts.max_lexical,
        parts.retention,
        parts.reputation,
        parts.age_days,
    )
    assert find_pb2.FindResponse.FIT_UNSPECIFIED == hit.applicability


def test_what_a_search_leaves_out_means_the_default():
    query = reads.to_find_query(find_pb2.FindRequest(query="water"))
    assert (Mode.HYBRID, 0, None, Selector()) == (query.mode, query.limit, query.min_similarity, query.selector)
    assert 0.0 == reads.to_find_query(find_pb2.FindRequest(query="w", min_similarity=0.0)).min_similarity


def test_a_graph_calls_its_nodes_by_id():
    relation = domain.Relation("r1", "a1B2c3D4", "about", "b2", 0.5, "why", NOW)
    response = reads.from_graph_result(GraphResult((Node(a_memory(), 1, 0.5),), (relation,), truncated=True))
    assert [("a1B2c3D4", 1, 0.5, "a1B2c3D4")] == [
        (node.ref, node.distance, node.weight, node.memory.id) for node in response.nodes
    ]
    (edge,) = response.edges
    assert ("r1", "a1B2c3D4", "about", "b2", 0.5, "why") == (
        edge.id,
        edge.source,
        edge.type,
        edge.target,
        edge.strength,
        edge.context,
    )


def test_a_selector_without_states_means_active():
    assert Selector() == to_selector(selector_pb2.Selector())
    message = selector_pb2.Selector(
        kinds=[1], tags_any=["a"], scopes=[3], states=[3, 5], ids=["x"], polarity=2, include_stale=True, project="p"
    )
    expected = Selector(
        kinds=(domain.Kind.SEMANTIC,),
        tags_any=("a",),
        scopes=(domain.Scope.TEAM,),
        states=(domain.State.SUPERSEDED, domain.State.DELETED),
        ids=("x",),
        polarity=domain.Polarity.NEGATIVE,
        include_stale=True,
        project="p",
    )
    assert expected == to_selector(message)


@pytest.mark.parametrize("names", [{}, {"id": "a", "uid": "b"}, {"id": "a", "key": "c"}])
def test_a_memory_is_named_in_exactly_one_way(names):
    with pytest.raises(InvalidArgumentError):
        reads.check_one_name(read_pb2.GetMemoryRequest(**names))
    reads.check_one_name(read_pb2.GetMemoryRequest(key="c"))


def test_request_ids_have_one_form_and_bodies_one_digest():
    forms = ["0190A5C4-7D10-7B3E-9D43-6F1F0C2B8A11", "0190a5c47d107b3e9d436f1f0c2b8a11"]
    first, second = (
        request_identity(store_pb2.StoreRequest(request_id=form, space=space, memory={"attributes": {"b": 1, "a": 2}}))
        for form, space in zip(forms, ("", "acme"), strict=True)
    )
    assert first == second
    assert str(UID) == first[0]
    other = request_identity(store_pb2.StoreRequest(request_id=forms[0], memory={"attributes": {"b": 1}}))
    assert first[1] != other[1]
    vote = request_identity(vote_pb2.VoteRequest(request_id=forms[0]))
    store = request_identity(store_pb2.StoreRequest(request_id=forms[0]))
    assert vote[1] != store[1]
    assert ("", "") == request_identity(store_pb2.StoreRequest(memory={"content": "x"}))


def test_ids_that_are_no_uuids_are_refused():
    with pytest.raises(InvalidArgumentError) as caught:
        request_identity(store_pb2.StoreRequest(request_id="once"))
    assert "request_id" == caught.value.field
    with pytest.raises(InvalidArgumentError):
        to_uid("uid", "a1B2c3D4")
    with pytest.raises(InvalidArgumentError):
        require("id", "")


def test_links_have_full_strength_unless_they_say_otherwise():
    request = store_pb2.StoreRequest(links=[{"type": "about", "target": "a"}, {"target": "b", "strength": 0.0}])
    assert [1.0, 0.0] == [link.strength for link in writes.to_store_command(request).links]


def test_a_batch_answers_item_by_item():
    outcomes = [
        StoreResult(a_memory(), Result.CREATED, ("warned",)),
        AlreadyExistsError("Take another key.", reason="KEY_TAKEN"),
    ]
    first, second = writes.from_outcomes(outcomes).items
    assert (1, ["warned"], "a1B2c3D4") == (
        first.response.result,
        list(first.response.warnings),
        first.response.memory.id,
    )
    assert (6, "KEY_TAKEN", "Take another key.") == (
        second.failure.code,
        second.failure.reason,
        second.failure.message,
    )
    assert (False, False) == (first.HasField("failure"), second.HasField("response"))


def test_a_space_left_to_its_defaults_has_them():
    assert default_space("acme") == spaces.to_new_space(space_pb2.Space(id="acme"))


def test_a_half_life_of_zero_means_no_decay_both_ways():
    message = space_pb2.Space(id="acme")
    message.half_life.SetInParent()
    space = spaces.to_new_space(message)
    assert space.half_life_days is None
    assert spaces.from_space(space).HasField("half_life")
    assert space == spaces.to_new_space(spaces.from_space(space))


@given(st.floats(0.001, 36_500))
def test_half_lives_survive_to_the_microsecond(days):
    space = replace(default_space("acme"), half_life_days=days)
    again = spaces.to_new_space(spaces.from_space(space)).half_life_days
    assert abs(timedelta(days=again) - timedelta(days=days)) <= timedelta(microseconds=1)


def test_a_space_update_changes_what_its_mask_names():
    request = space_pb2.UpdateSpaceRequest(
        space={"id": "acme", "display_name": "Acme", "default_confidence": 0.3, "language": "german"},
        update_mask={"paths": ["display_name"]},
    )
    before = replace(default_space("acme"), default_confidence=0.6)
    assert replace(before, display_name="Acme") == spaces.to_space_edit(request)(before)
    request.update_mask.paths[:] = ["default_confidence"]
    request.space.ClearField("default_confidence")
    assert default_space("acme") == spaces.to_space_edit(request)(before)


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ([], "INVALID_FIELD"),
        (["id"], "INVALID_FIELD_MASK"),
        (["packs"], "INVALID_FIELD_MASK"),
        (["nonsense"], "INVALID_FIELD_MASK"),
        (["stale_threshold"], "FIELD_NOT_SUPPORTED"),
        (["gate.novelty"], "FIELD_NOT_SUPPORTED"),
    ],
)
def test_other_settings_are_refused_by_name(paths, reason):
    with pytest.raises(InvalidArgumentError) as caught:
        spaces.to_space_edit(space_pb2.UpdateSpaceRequest(space={"id": "acme"}, update_mask={"paths": paths}))
    assert reason == caught.value.reason


def test_a_key_shows_what_is_known_and_takes_what_is_asked():
    key = ApiKey("k1", "CI", "ann", (Role.WRITER,), "shop", NOW, expire_time=NOW, revoke_time=NOW)
    message = keys.from_key(key)
    assert ("k1", "CI", "ann", [2], "shop", True, False) == (
        message.id,
        message.display_name,
        message.owner,
        list(message.roles),
        message.project,
        message.revoked,
        message.HasField("last_used_time"),
    )
    asked = keys.to_new_key(key_pb2.Key(id="forged", owner="ann", roles=[4, 1, 4], project="shop"))
    assert ("", (Role.READER, Role.ADMIN), None) == (asked.id, asked.roles, asked.expire_time)
