"""Natural keys: one living holder in each place, and a way to get at it."""

import grpc
import pytest
from spaces_apart import store_request

from lorebank.v1 import memory_pb2, store_pb2

USER, PROJECT, TEAM, GLOBAL = (
    memory_pb2.SCOPE_USER,
    memory_pb2.SCOPE_PROJECT,
    memory_pb2.SCOPE_TEAM,
    memory_pb2.SCOPE_GLOBAL,
)


def place(scope, project=""):
    return {"scope": scope, "project": project}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (place(USER), place(USER)),
        (place(USER), place(USER, "shop")),
        (place(USER), place(PROJECT, "shop")),
        (place(PROJECT, "shop"), place(PROJECT, "blog")),
        (place(TEAM), place(TEAM)),
        (place(TEAM, "shop"), place(TEAM, "shop")),
        (place(GLOBAL), place(GLOBAL)),
        (place(GLOBAL), place(GLOBAL, "shop")),
    ],
)
async def test_a_key_that_is_taken_names_its_holder(me, first, second):
    holder = (await me.call(store_request("The first fact.", key="k", **first))).memory
    error = await me.refused(store_request("The second fact.", key="k", **second))
    assert (grpc.StatusCode.ALREADY_EXISTS, "KEY_TAKEN", {"id": holder.id}) == (
        error.code,
        error.reason,
        dict(error.metadata),
    )
    assert f"update or supersede {holder.id}" in error.message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (place(USER), place(TEAM)),
        (place(USER), place(GLOBAL)),
        (place(TEAM), place(GLOBAL)),
        (place(TEAM, "shop"), place(TEAM, "blog")),
        (place(TEAM), place(TEAM, "shop")),
    ],
)
async def test_a_key_is_free_in_another_place(me, first, second):
    await me.call(store_request("The first fact.", key="k", **first))
    await me.call(store_request("The second fact.", key="k", **second))


async def test_a_key_is_each_owners_own_in_private_and_one_in_the_team(here, me):
    other = await here.caller("other")
    await me.store("My private fact.", key="k")
    await other.store("Their private fact.", key="k")
    shared = await me.store("Our common fact.", key="k", scope="team")
    error = await other.refused(store_request("Their common fact.", key="k", scope=TEAM))
    assert shared.id == error.metadata["id"]


async def test_a_key_finds_the_callers_own_then_the_teams_then_the_global_one(here, me):
    everybody = await me.store("The global fact.", key="k", scope="global")
    assert everybody.id == (await me.client.get(key="k")).id
    team = await me.store("The team's fact.", key="k", scope="team")
    assert team.id == (await me.client.get(key="k")).id
    own = await me.store("The private fact.", key="k")
    assert own.id == (await me.client.get(key="k")).id
    other = await here.caller("other")
    assert team.id == (await other.client.get(key="k")).id


async def test_deleting_frees_a_key_and_undeleting_needs_it(me):
    first = await me.store("The first fact.", key="k")
    await me.client.delete(first.id)
    second = await me.store("The second fact.", key="k")
    with pytest.raises(Exception, match=second.id) as caught:
        await me.client.undelete(first.id)
    assert (grpc.StatusCode.ALREADY_EXISTS, "KEY_TAKEN") == (caught.value.code, caught.value.reason)
    assert second.id == caught.value.metadata["id"]
    await me.client.delete(second.id)
    assert memory_pb2.STATE_ACTIVE == (await me.client.undelete(first.id)).state
    assert first.id == (await me.client.get(key="k")).id


async def test_a_successor_takes_the_key_over(me):
    first = await me.store("The first fact.", key="k")
    replaced = await me.client.supersede(first.id, "The second fact.", key="k")
    assert replaced.memory.id == (await me.client.get(key="k")).id


async def test_a_successor_without_the_key_frees_it(me):
    first = await me.store("The first fact.", key="k")
    await me.client.supersede(first.id, "The second fact.")
    third = await me.store("The third fact.", key="k")
    assert third.id == (await me.client.get(key="k")).id


async def test_a_successor_cannot_take_anothers_key(me):
    first = await me.store("The first fact.")
    holder = await me.store("The second fact.", key="k")
    with pytest.raises(Exception, match=r"taken|already") as caught:
        await me.client.supersede(first.id, "The third fact.", key="k")
    assert (grpc.StatusCode.ALREADY_EXISTS, "KEY_TAKEN") == (caught.value.code, caught.value.reason)
    assert holder.id == caught.value.metadata["id"]
    assert memory_pb2.STATE_ACTIVE == (await me.client.get(first.id)).state


async def test_a_holder_that_the_caller_cannot_see_is_not_named(here):
    whole, bound = await here.caller("twin"), await here.caller("twin", project="shop")
    holder = await whole.store("A fact of another project.", key="k", project="blog")
    error = await bound.refused(store_request("A fact of this project.", key="k"))
    assert (grpc.StatusCode.ALREADY_EXISTS, "KEY_TAKEN", {}) == (error.code, error.reason, dict(error.metadata))
    assert holder.id not in error.message
    items = (
        await bound.call(
            store_pb2.BatchStoreRequest(
                requests=[
                    store_request("One good fact."),
                    store_request("A taken key.", key="k"),
                    store_request("Another good fact."),
                ]
            )
        )
    ).items
    assert ["", "KEY_TAKEN", ""] == [item.failure.reason for item in items]
    assert {"One good fact.", "Another good fact."} == {memory.content async for memory in bound.client.list()}
