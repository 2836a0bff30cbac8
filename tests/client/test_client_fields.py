from datetime import UTC, datetime

import pytest

from lorebank import AsyncClient, Memory, Selector
from lorebank._enums import enum_name, enum_number
from lorebank._fields import new_memory, new_selector
from lorebank.v1.memory_pb2 import Scope
from lorebank.v1.on_duplicate_pb2 import OnDuplicate

MARCH = datetime(2026, 3, 1, tzinfo=UTC)


def test_fields_become_the_message():
    memory = new_memory(
        "A fact.", None, {"scope": "team", "tags": ("a", "b"), "attributes": {"n": 1.0}, "valid_from": MARCH}
    )
    expected = Memory(content="A fact.", scope="SCOPE_TEAM", tags=["a", "b"], attributes={"n": 1.0})
    expected.valid_from.FromDatetime(MARCH)
    assert expected == memory


@pytest.mark.parametrize("content", ["", "A fact."])
def test_a_memory_is_given_once(content):
    memory = Memory(content="Another.") if content else None
    with pytest.raises(TypeError):
        new_memory(content, memory, {})


def test_a_moment_names_its_time_zone():
    with pytest.raises(ValueError, match="time zone"):
        new_memory("A fact.", None, {"valid_from": MARCH.replace(tzinfo=None)})


def test_one_text_is_no_list_of_texts():
    with pytest.raises(ValueError, match="tags takes several"):
        new_memory("A fact.", None, {"tags": "staging"})


def test_nothing_that_narrows_is_no_selector():
    assert None is new_selector(None, {})


def test_a_selector_is_given_once():
    with pytest.raises(TypeError):
        new_selector(Selector(project="shop"), {"project": "shop"})


@pytest.mark.parametrize("value", ["keep-both", "KEEP_BOTH", 1])
def test_a_value_goes_by_its_short_name_or_number(value):
    assert 1 == enum_number(OnDuplicate, value)


def test_an_unknown_value_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'everyone' is no Scope; choose one of: user, project, team, global"):
        enum_number(Scope, "everyone")


def test_a_value_of_a_newer_contract_shows_as_its_number():
    assert ("team", "99") == (enum_name(Scope, 3), enum_name(Scope, 99))


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.find(),
        lambda client: client.find("a question", similar_to="a1B2c3D4"),
        lambda client: client.get(),
        lambda client: client.get("a1B2c3D4", key="mine"),
        lambda client: client.update("a1B2c3D4"),
        lambda client: client.update(Memory(id="a1B2c3D4"), title="both"),
    ],
)
async def test_calls_that_make_no_sense_do_not_leave_the_client(call):
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(TypeError):
            await call(client)
