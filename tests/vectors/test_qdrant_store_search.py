"""A search finds what brute force finds, whatever is selected and wherever the store runs."""

import dataclasses
from datetime import timedelta

import pytest
from vector_points import BUCKETS, GENERATION, NOW, expected, many_points, unit_vector

from lorebank_server.domain.memory import Kind, Polarity, Scope, State
from lorebank_server.domain.selector import Selector
from lorebank_server.ports.vector_store import Generation

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect", "ignore:Local mode performs exact")

POINTS = many_points()
YESTERDAY = NOW - timedelta(days=1)
SELECTIONS = [
    {"kinds": (Kind.SEMANTIC, Kind.EPISODIC)},
    {"categories": ("swarm/pattern", "personal/fact")},
    {"collections": ("ops",)},
    {"collections": ("",)},
    {"tags_all": ("go", "zürich")},
    {"tags_any": ("ci", "sql")},
    {"tags_all": ("go",), "tags_any": ("ci", "sql")},
    {"subjects": ("Deployments", "deployments")},
    {"subjects": ("Ärger", "ärger")},
    {"subjects": ("DEPLOYMENTS", "deployments")},
    {"states": (State.SUPERSEDED, State.DELETED)},
    {"agents": ("builder",)},
    {"runs": ("run-1", "run-2")},
    {"owners": ("bob",)},
    {"ids": tuple(f"id{number:06}" for number in range(0, 300, 3))},
    {"created_after": YESTERDAY},
    {"created_before": YESTERDAY},
    {"created_after": YESTERDAY, "created_before": NOW},
    {"polarity": Polarity.NEGATIVE},
    {"include_stale": True},
    {"kinds": (Kind.SEMANTIC, Kind.PROCEDURAL), "owners": ("ann",), "tags_any": ("go", "sql"), "include_stale": True},
]


async def search(store, selector=None, *, space_id=1, buckets=BUCKETS, limit=1000):
    wanted = selector or Selector()
    return list(await store.search(GENERATION, space_id, buckets, unit_vector(9999), wanted, now=NOW, limit=limit))


def oracle(selector=None, *, space_id=1, buckets=BUCKETS, limit=1000):
    return expected(POINTS, space_id, buckets, unit_vector(9999), selector or Selector(), limit)


def test_every_field_of_a_selector_is_tried():
    tried = {name for selection in SELECTIONS for name in selection}
    in_buckets = {"scopes", "project"}
    assert {field.name for field in dataclasses.fields(Selector)} - in_buckets == tried


@pytest.mark.parametrize("selection", SELECTIONS, ids="+".join)
async def test_a_selection_finds_the_same_in_the_same_order_as_brute_force(filled, selection):
    selector = Selector(**selection)
    everything = oracle(Selector(states=tuple(State), include_stale=True))
    wanted = oracle(selector)
    assert 0 < len(wanted) < len(everything)
    assert wanted == await search(filled, selector)
    assert wanted[:7] == await search(filled, selector, limit=7)


@pytest.mark.parametrize("space_id", [1, 2])
@pytest.mark.parametrize("buckets", [BUCKETS, BUCKETS[:1], (*BUCKETS[1:], 99)])
async def test_only_the_space_and_its_buckets_are_searched(filled, space_id, buckets):
    wanted = oracle(space_id=space_id, buckets=buckets)
    assert wanted
    assert wanted == await search(filled, space_id=space_id, buckets=buckets)


@pytest.mark.parametrize("arguments", [{"space_id": 3}, {"buckets": ()}, {"buckets": (99,)}, {"limit": 0}])
async def test_nothing_is_found_where_nothing_is_wanted(filled, arguments):
    assert await search(filled, **arguments) == []


async def test_a_selector_without_states_selects_nothing(filled):
    assert await search(filled, Selector(states=())) == []


async def test_scope_and_project_are_left_to_the_buckets(filled):
    assert await search(filled, Selector(scopes=(Scope.TEAM,), project="shop")) == oracle()


async def test_similarities_are_left_to_postgres(filled):
    found = await filled.search(GENERATION, 1, BUCKETS, unit_vector(1), Selector(), now=NOW, limit=3)
    assert [None] * 3 == list(found.values())


async def test_a_subject_is_found_as_written_or_in_lower_case_alone(filled):
    assert await search(filled, Selector(subjects=("DEPLOYMENTS",))) == []


async def test_generations_are_apart(filled):
    other = Generation(number=2, dimensions=GENERATION.dimensions)
    assert await filled.prepare(other)
    found = await filled.search(other, 1, BUCKETS, unit_vector(1), Selector(), now=NOW, limit=10)
    await filled.drop(other)
    assert found == {}
    assert await search(filled) == oracle()
