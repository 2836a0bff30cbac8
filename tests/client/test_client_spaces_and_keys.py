import pytest

import lorebank
from lorebank import AsyncClient, Space


@pytest.fixture
async def client(server):
    async with AsyncClient(server.address) as opened:
        yield opened


async def test_a_space_is_created_read_changed_and_listed(client):
    created = await client.spaces.create(Space(id="acme", display_name="Acme"))
    changed = await client.spaces.update(
        Space(id="acme", display_name="Acme Ltd", etag=created.etag), mask=["display_name"]
    )
    spaces = [space.id async for space in client.spaces.list()]
    assert ("Acme", "Acme Ltd") == (created.display_name, (await client.spaces.get("acme")).display_name)
    assert changed.etag == (await client.spaces.get("acme")).etag
    assert ["acme", "default"] == spaces


async def test_a_change_of_what_has_changed_is_aborted(client):
    created = await client.spaces.create("acme")
    await client.spaces.update(Space(id="acme", display_name="Acme"), mask=["display_name"])
    with pytest.raises(lorebank.Aborted):
        await client.spaces.update(Space(id="acme", display_name="ACME", etag=created.etag), mask=["display_name"])


async def test_a_space_is_deleted_in_two_steps(client):
    await client.spaces.create("acme")
    counted = await client.spaces.delete("acme")
    deleted = await client.spaces.delete("acme", confirm=counted.digest)
    assert (False, True) == (counted.done, deleted.done)
    with pytest.raises(lorebank.NotFound):
        await client.spaces.get("acme")


async def test_a_key_of_another_space_works_there(client, server):
    await client.spaces.create("acme")
    admin = await client.keys.create("maren", roles=["admin"])
    async with AsyncClient(server.address, api_key=admin.secret, space="acme") as operator:
        created = await operator.keys.create("tobias", roles=["writer"])
    async with AsyncClient(server.address, api_key=created.secret) as tobias:
        await tobias.store("The shop is deployed with Argo.")
        assert "acme" == (await tobias.spaces.get()).id
    async with AsyncClient(server.address, api_key=admin.secret) as maren:
        assert [] == [memory async for memory in maren.list()]


async def test_a_key_opens_its_space_until_it_is_revoked(client, server):
    admin = await client.keys.create("root", roles=["admin"])
    async with (
        AsyncClient(server.address, api_key=admin.secret) as root,
        AsyncClient(
            server.address, api_key=(created := await root.keys.create("maren", roles=["writer"])).secret
        ) as maren,
    ):
        stored = await maren.store("The shop is deployed with Argo.")
        assert "maren" == stored.memory.owner
        with pytest.raises(lorebank.PermissionDenied):
            await maren.keys.create("tobias", roles=["reader"])
        revoked = await root.keys.revoke(created.key.id)
        with pytest.raises(lorebank.Unauthenticated):
            await maren.find("how is the shop deployed")
        keys = {key.owner: key.revoked async for key in root.keys.list()}
    assert ({"root": False, "maren": True}, True) == (keys, revoked.revoked)
