"""Without any key, local callers govern; with the first key, or beyond loopback, nobody does without one."""

import pytest
from identity_world import open_world, refusal

import lorebank
from lorebank import AsyncClient
from lorebank_server.serving import RefusedToStartError

ANYWHERE = "0.0.0.0:0"
REQUIRED = (lorebank.Unauthenticated, "CREDENTIAL_REQUIRED")


@pytest.fixture
async def world(database_factory, embedder):
    async with open_world(database_factory, embedder) as opened:
        yield opened


async def refused(call):
    error = await refusal(call)
    return type(error), error.reason


async def test_local_callers_govern_a_server_without_keys(world):
    anyone = world.client("")
    stored = (await anyone.store("Anyone on this machine may write.", scope="global")).memory
    await anyone.spaces.create("acme")
    assert ("local", ["acme", "default"]) == (stored.owner, [space.id async for space in anyone.spaces.list()])


async def test_a_wrong_key_is_refused_where_none_is_needed(world):
    assert (lorebank.Unauthenticated, "KEY_UNKNOWN") == await refused(world.client("lb_wrong000_x").get("anything"))


async def test_open_access_ends_with_the_first_key_and_does_not_come_back(world):
    anyone = world.client("")
    created = await anyone.keys.create("maren", roles=["admin"])
    assert REQUIRED == await refused(anyone.get("anything"))
    assert REQUIRED == await refused(anyone.keys.create("mallory", roles=["admin"]))
    maren = world.client(created.secret)
    assert "default" == (await maren.spaces.get()).id
    await maren.keys.revoke(created.key.id)
    assert REQUIRED == await refused(anyone.get("anything"))
    async with world.another_server() as restarted:
        assert REQUIRED == await refused(restarted.client("").get("anything"))


@pytest.mark.parametrize("role", ["reader", "admin"])
async def test_the_first_key_counts_whatever_its_role_and_space(world, role):
    anyone = world.client("")
    await anyone.spaces.create("acme")
    async with AsyncClient(world.address, space="acme") as governor:
        await governor.keys.create("maren", roles=[role])
    assert REQUIRED == await refused(anyone.get("anything"))


async def test_a_key_made_by_another_server_ends_open_access_at_once(world):
    async with world.another_server() as other:
        await other.client("").get_many(["anything"])
        await world.client("").keys.create("maren", roles=["admin"])
        assert REQUIRED == await refused(other.client("").get("anything"))


async def test_a_refused_first_key_leaves_access_open(world):
    anyone = world.client("")
    assert lorebank.InvalidArgument is (await refused(anyone.keys.create(" ", roles=["admin"])))[0]
    assert "default" == (await anyone.spaces.get()).id


async def test_the_keys_of_a_deleted_space_still_count_as_created(world):
    anyone = world.client("")
    await anyone.spaces.create("acme")
    operator = world.client((await anyone.keys.create("operator", roles=["admin"])).secret)
    counted = await operator.spaces.delete("acme")
    assert (await operator.spaces.delete("acme", confirm=counted.digest)).done
    assert REQUIRED == await refused(anyone.get("anything"))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"listen": ANYWHERE}, id="beyond loopback"),
        pytest.param({"auth": "required"}, id="required"),
        pytest.param({"listen": ANYWHERE, "auth": "required"}, id="both"),
    ],
)
async def test_a_server_that_nobody_may_call_refuses_to_start(world, settings):
    with pytest.raises(RefusedToStartError) as caught:
        async with world.another_server(**settings):
            pytest.fail("it started")
    assert "NO_CREDENTIALS" == caught.value.reason
    assert "lorebank keys create --direct" in caught.value.message
    created = await world.client("").keys.create("maren", roles=["admin"])
    async with world.another_server(**settings) as started:
        assert REQUIRED == await refused(started.client("").get("anything"))
        assert "default" == (await started.client(created.secret).spaces.get()).id
