from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorebank.v1 import memory_pb2, write_pb2
from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.memory import Applicability, Card, Draft, Evidence, Kind, Origin, Provenance, Scope, Triage
from lorebank_server.rpc.conversion.masks import CHANGEABLE_PATHS, to_edit

DRAFT = Draft(
    content="Water boils at 100 degrees.",
    title="Boiling",
    card=Card(summary="hot", gotchas=("steam",), evidence=(Evidence(text="seen"),), triage=Triage(symptoms=("a",))),
    keywords=("k",),
    kind=Kind.SEMANTIC,
    tags=("a", "b"),
    attributes={"a": 1.0},
    scope=Scope.TEAM,
    project="shop",
    key="boiling",
    applicability=Applicability(repo="r"),
    provenance=Provenance(origin=Origin.OBSERVED, agent="me"),
    confidence=0.5,
    pinned=True,
)


def edited(paths=(), **memory):
    request = write_pb2.UpdateMemoryRequest(memory=memory_pb2.Memory(id="a1B2c3D4", **memory))
    request.update_mask.paths.extend(paths)
    return to_edit(request)(DRAFT)


def refused(paths=(), **memory):
    with pytest.raises(InvalidArgumentError) as caught:
        edited(paths, **memory)
    return caught.value


def test_only_named_paths_change():
    assert replace(DRAFT, title="New") == edited(["title"], title="New", content="ignored", tags=["x"])


def test_a_part_of_a_message_changes_and_leaves_its_neighbours():
    changed = edited(["card.summary", "provenance.agent"], card={"summary": "cold"}, provenance={"agent": "you"})
    assert replace(DRAFT.card, summary="cold") == changed.card
    assert replace(DRAFT.provenance, agent="you") == changed.provenance


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("title", "title", ""),
        ("tags", "tags", ()),
        ("attributes", "attributes", {}),
        ("confidence", "confidence", None),
        ("pinned", "pinned", False),
        ("kind", "kind", Kind.UNSPECIFIED),
        ("card", "card", None),
        ("card.summary", "card", replace(DRAFT.card, summary="")),
        ("card.triage", "card", replace(DRAFT.card, triage=None)),
        ("card.triage.symptoms", "card", replace(DRAFT.card, triage=None)),
        ("card.evidence", "card", replace(DRAFT.card, evidence=())),
        ("applicability.repo", "applicability", None),
        ("provenance", "provenance", Provenance()),
    ],
)
def test_a_path_that_is_named_and_empty_is_cleared(path, field, value):
    assert replace(DRAFT, **{field: value}) == edited([path])


def test_lists_and_free_form_values_are_replaced_and_not_merged():
    changed = edited(["tags", "attributes"], tags=["c"], attributes={"b": 2})
    assert (("c",), {"b": 2.0}) == (changed.tags, changed.attributes)


def test_without_a_mask_every_field_that_is_not_empty_is_taken_over():
    changed = edited(title="New", confidence=0.0, quality={"strength": 1.0}, owner="eve", state=5)
    assert replace(DRAFT, title="New", confidence=0.0) == changed


def test_without_a_mask_what_is_kept_for_life_reaches_the_operation_which_compares_it():
    assert "other" == edited(key="other", title="New").key


def test_a_mask_may_be_applied_more_than_once():
    request = write_pb2.UpdateMemoryRequest(memory={"id": "x"}, update_mask={"paths": ["card.summary"]})
    edit = to_edit(request)
    assert edit(DRAFT) == edit(edit(DRAFT))
    assert not request.memory.HasField("card")


@pytest.mark.parametrize(
    "path", ["quality", "state", "id", "etag", "nonsense", "card.nonsense", "provenance.trust", "*"]
)
def test_output_only_and_unknown_paths_are_refused_by_name(path):
    error = refused([path])
    assert ("INVALID_FIELD_MASK", "update_mask") == (error.reason, error.field)
    assert path in error.message
    assert "card.summary" in error.message


@pytest.mark.parametrize("path", ["key", "scope", "project"])
def test_what_is_kept_for_life_is_refused(path):
    assert "IMMUTABLE_FIELD" == refused([path]).reason


def test_a_field_that_is_not_honoured_is_refused_in_a_mask():
    assert "FIELD_NOT_SUPPORTED" == refused(["expire_time"]).reason


def test_nothing_to_change_is_refused():
    assert "memory" == refused().field


@given(st.sets(st.sampled_from(CHANGEABLE_PATHS), min_size=1))
def test_writing_a_draft_over_itself_changes_nothing(paths):
    from lorebank_server.rpc.conversion.drafts import write_draft

    request = write_pb2.UpdateMemoryRequest(memory={"id": "x"}, update_mask={"paths": sorted(paths)})
    write_draft(DRAFT, request.memory)
    assert DRAFT == to_edit(request)(DRAFT)
