"""The normal form of a draft."""

import unicodedata
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorebank_server.domain import limits
from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.memory import Card, Draft, Link, Scope, Triage

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
DRAFTS = st.builds(
    Draft,
    content=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    title=TEXT,
    subject=TEXT,
    tags=st.lists(TEXT, max_size=6).map(tuple),
    keywords=st.lists(TEXT, max_size=6).map(tuple),
    confidence=st.none() | st.floats(-0.1, 1.1),
    scope=st.sampled_from(Scope),
    project=st.sampled_from(["", "shop", "Shop/a:b_c-d.e", "no good"]),
    category=st.sampled_from(["", "fact", "a/b", "No"]),
    card=st.none() | st.builds(Card, summary=TEXT, gotchas=st.lists(TEXT, max_size=3).map(tuple)),
    attributes=st.dictionaries(TEXT, st.none() | st.booleans() | st.floats(-1e17, 1e17) | TEXT, max_size=3),
)


def normalized(draft):
    try:
        return limits.normalize(draft)
    except InvalidArgumentError as error:
        return error


@given(draft=DRAFTS)
def test_the_normal_form_is_its_own_normal_form(draft):
    once = normalized(draft)
    if isinstance(once, InvalidArgumentError):
        assert once.field.startswith("memory.")
        assert once.field in once.message or "scope PROJECT" in once.message
        return
    assert once == limits.normalize(once)
    assert draft.content == once.content
    assert len(set(once.tags)) == len(once.tags)
    assert all(tag == unicodedata.normalize("NFC", tag).strip().lower() and tag for tag in once.tags)
    assert "\x00" not in once.content + once.title + once.subject + "".join(once.tags)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"card": Card(triage=Triage(gotchas=("x" * 2001,)))}, "memory.card.triage.gotchas[0]"),
        ({"card": Card(invariants=("x",) * 33)}, "memory.card.invariants"),
        ({"attributes": {"a": [["x" * 9000], ["y" * 9000]]}}, "memory.attributes"),
        ({"attributes": {"a": float("nan")}}, "memory.attributes"),
        ({"attributes": {"a": "\x00"}}, "memory.attributes"),
        ({"attributes": {f"key{n}": True for n in range(2000)}}, "memory.attributes"),
        ({"scope": Scope.PROJECT}, "memory.project"),
        (
            {"valid_from": datetime(2026, 1, 2, tzinfo=UTC), "valid_until": datetime(2026, 1, 1, tzinfo=UTC)},
            "memory.valid_until",
        ),
    ],
)
def test_what_is_out_of_its_limits_is_named(change, field):
    with pytest.raises(InvalidArgumentError) as caught:
        limits.normalize(replace(Draft("A good fact."), **change))
    assert field == caught.value.field


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ("", False),
        ("a", True),
        ("a-b-9", True),
        ("-a", False),
        ("A", False),
        ("a" * 64, True),
        ("a" * 65, False),
        ("a\n", False),
    ],
)
def test_a_space_is_called_by_a_slug(value, good):
    if good:
        limits.check_space_id("space.id", value)
    else:
        with pytest.raises(InvalidArgumentError):
            limits.check_space_id("space.id", value)


@pytest.mark.parametrize("value", ["fact\n", "a//b", "/a", "a/", "é", "a b", "x" * 65])
def test_a_slug_is_refused_that_only_looks_like_one(value):
    with pytest.raises(InvalidArgumentError):
        limits.check_slug("memory.category", value)


def test_the_last_of_two_equal_links_wins():
    links = [Link("about", "t", 0.1), Link("about", "u"), Link("about", "t", 0.9), Link("part_of", "t")]
    assert (Link("about", "t", 0.9), Link("about", "u"), Link("part_of", "t")) == limits.normalize_links(links)
    assert () == limits.normalize_links([])
