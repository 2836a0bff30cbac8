"""Keys: shown once, kept as a hash, refused the moment that they should be."""

import asyncio
from datetime import timedelta

import grpc
import pytest
from identity_world import database_owner, governed_world, refusal, tables

import lorebank
from lorebank import AsyncClient
from lorebank.v1 import read_pb2
from lorebank.v1.memory_service_pb2 import DESCRIPTOR

LIST = DESCRIPTOR.services_by_name["MemoryService"].methods_by_name["ListMemories"]
TENANT, RIVAL = "acme", "rival"


@pytest.fixture(scope="module")
async def world(database_factory, embedder):
    async with governed_world(database_factory, embedder, TENANT, RIVAL) as opened:
        yield opened


async def refused(call):
    error = await refusal(call)
    return type(error), error.reason


def unauthenticated(reason):
    return lorebank.Unauthenticated, reason


async def keys_of(client):
    return {key.id: key async for key in client.keys.list()}


async def test_a_secret_is_shown_once_and_kept_nowhere(world):
    created = await world.key(TENANT, "alice")
    await world.client(created.secret).store("Alice deploys with her key.")
    async with database_owner(world.dsn) as connection:
        for table in await tables(connection):
            for row in await connection.fetch(f"select t::text as line from {table} t"):
                for form in (created.secret, created.secret.rpartition("_")[2], created.secret.encode().hex()):
                    assert form not in row["line"]
    listed = (await keys_of(await world.caller(TENANT, "admin", "admin")))[created.key.id]
    assert created.secret.rpartition("_")[2] not in str(listed)


async def test_secrets_are_long_and_never_the_same(world):
    secrets = {(await world.key(TENANT, "alice")).secret for _ in range(3)}
    assert (3, {43}) == (len(secrets), {len(secret.rpartition("_")[2]) for secret in secrets})


async def test_a_wrong_secret_is_refused_like_an_unknown_key(world):
    created = await world.key(TENANT, "alice")
    prefix, _, tail = created.secret.rpartition("_")
    wrong = f"{prefix}_{tail[:-1]}{'A' if tail[-1] != 'A' else 'B'}"
    unknown = f"lb_unknown0_{tail}"
    told = [await refusal(world.client(secret).get("anything")) for secret in (wrong, unknown, "no-key-at-all")]
    assert {(lorebank.Unauthenticated, "KEY_UNKNOWN")} == {(type(error), error.reason) for error in told}
    assert 1 == len({error.message for error in told})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        pytest.param([], "CREDENTIAL_REQUIRED", id="none"),
        pytest.param([""], "CREDENTIAL_MALFORMED", id="empty"),
        pytest.param(["{secret}"], "CREDENTIAL_MALFORMED", id="no scheme"),
        pytest.param(["Basic {secret}"], "CREDENTIAL_MALFORMED", id="another scheme"),
        pytest.param(["Bearer"], "CREDENTIAL_MALFORMED", id="no key"),
        pytest.param(["Bearer {secret}", "Bearer {secret}"], "CREDENTIAL_MALFORMED", id="twice"),
        pytest.param(["Bearer {secret} {secret}"], "KEY_UNKNOWN", id="two keys in one"),
        pytest.param(["Bearer {secret}x"], "KEY_UNKNOWN", id="too long"),
        pytest.param(["Bearer " + "x" * 4000], "KEY_UNKNOWN", id="much too long"),
        pytest.param(["bearer  {secret} "], "", id="any case and blanks"),
    ],
)
async def test_a_malformed_header_is_refused_and_not_repeated(world, values, reason):
    secret = (await world.key(TENANT, "alice")).secret
    metadata = tuple(("authorization", value.format(secret=secret)) for value in values)
    request = read_pb2.ListMemoriesRequest()
    outcome = await world.call("lorebank.v1.MemoryService", LIST, request, metadata=metadata)
    code = grpc.StatusCode.UNAUTHENTICATED if reason else grpc.StatusCode.OK
    assert (code, reason, "lorebank" if reason else "") == (outcome.code, outcome.reason, outcome.domain)
    assert secret[4:] not in outcome.message
    assert secret[4:].encode() not in outcome.details


async def test_a_key_works_until_it_expires(world):
    created = await world.key(TENANT, "eve", expire_time=world.clock.now + timedelta(minutes=2))
    client = world.client(created.secret)
    world.clock.advance(seconds=119)
    await client.get_many(["anything"])
    for seconds in (1, 10):
        world.clock.advance(seconds=seconds)
        assert unauthenticated("KEY_EXPIRED") == await refused(client.get_many(["anything"]))
    error = await refusal(world.key(TENANT, "eve", expire_time=world.clock.now))
    assert (lorebank.InvalidArgument, "key.expire_time") == (type(error), error.violations[0].field)


async def test_a_revoked_key_is_refused_at_once_and_for_good(world):
    created = await world.key(TENANT, "eve")
    client, admin = world.client(created.secret), await world.caller(TENANT, "admin", "admin")
    await client.get_many(["anything"])
    revoked = await admin.keys.revoke(created.key.id)
    assert unauthenticated("KEY_REVOKED") == await refused(client.get_many(["anything"]))
    world.clock.advance(seconds=30)
    assert unauthenticated("KEY_REVOKED") == await refused(client.get_many(["anything"]))
    assert revoked == await admin.keys.revoke(created.key.id)
    assert revoked.revoked
    assert (await keys_of(admin))[created.key.id].revoked


async def test_an_admin_may_revoke_the_key_it_calls_with(world):
    created = await world.key(TENANT, "admin", "admin")
    admin = world.client(created.secret)
    await admin.keys.revoke(created.key.id)
    assert unauthenticated("KEY_REVOKED") == await refused(admin.spaces.get())


async def test_a_key_revoked_while_it_is_read_is_not_remembered(world, monkeypatch):
    created = await world.key(TENANT, "eve")
    administration = world.running.services.administration
    read, go_on = asyncio.Event(), asyncio.Event()
    credential = administration.credential

    async def slowly(key_id):
        found = await credential(key_id)
        if key_id == created.key.id:
            read.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(administration, "credential", slowly)
    client = world.client(created.secret)
    under_way = asyncio.create_task(client.get_many(["anything"]))
    await read.wait()
    async with AsyncClient(world.address, api_key=world.operator, space=TENANT) as operator:
        await operator.keys.revoke(created.key.id)
    go_on.set()
    await under_way
    assert unauthenticated("KEY_REVOKED") == await refused(client.get_many(["anything"]))


async def test_a_key_revoked_elsewhere_holds_for_five_seconds_at_most(world):
    created = await world.key(TENANT, "eve")
    async with world.another_server() as other:
        there = other.client(created.secret)
        await there.get_many(["anything"])
        async with AsyncClient(world.address, api_key=world.operator, space=TENANT) as operator:
            await operator.keys.revoke(created.key.id)
        world.clock.advance(seconds=5.5)
        assert unauthenticated("KEY_REVOKED") == await refused(there.get_many(["anything"]))


async def test_the_time_of_last_use_moves_by_the_minute(world):
    admin = await world.caller(TENANT, "admin", "admin")
    created = await world.key(TENANT, "eve")
    client = world.client(created.secret)

    async def last_used():
        key = (await keys_of(admin))[created.key.id]
        return key.last_used_time.ToDatetime(tzinfo=world.clock.now.tzinfo) if key.HasField("last_used_time") else None

    assert await last_used() is None
    await client.get_many(["anything"])
    first = world.clock.now
    assert first == await last_used()
    world.clock.advance(seconds=30)
    await client.get_many(["anything"])
    assert first == await last_used()
    world.clock.advance(seconds=31)
    await client.get_many(["anything"])
    assert world.clock.now == await last_used()


async def test_a_refused_key_does_not_count_as_used(world):
    admin = await world.caller(TENANT, "admin", "admin")
    created = await world.key(TENANT, "eve")
    prefix = created.secret.rpartition("_")[0]
    await refusal(world.client(f"{prefix}_{'x' * 43}").get("anything"))
    assert not (await keys_of(admin))[created.key.id].HasField("last_used_time")


async def test_a_readers_key_reads_and_does_not_write(world):
    reader, writer = await world.caller(TENANT, "alice", "reader"), await world.caller(TENANT, "alice")
    stored = (await writer.store("Readers read what writers write.")).memory
    assert stored.id == (await reader.get(stored.id)).id
    for call in (reader.store("Readers do not write."), reader.delete(stored.id), reader.upvote(stored.id)):
        assert (lorebank.PermissionDenied, "ROLE_REQUIRED") == await refused(call)


async def test_keys_of_one_owner_share_their_memories_and_only_within_a_space(world):
    first, second = await world.caller(TENANT, "frank"), await world.caller(TENANT, "frank")
    elsewhere = await world.caller(RIVAL, "frank")
    stored = (await first.store("Frank deploys at night.")).memory
    assert stored.id == (await second.get(stored.id)).id
    assert (lorebank.NotFound, "MEMORY_NOT_FOUND") == await refused(elsewhere.get(stored.id))


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"owner": " "}, "key.owner"),
        ({"owner": "x" * 201}, "key.owner"),
        ({"owner": "eve", "roles": []}, "key.roles"),
        ({"owner": "eve", "project": "no project"}, "key.project"),
        ({"owner": "eve", "display_name": "x" * 201}, "key.display_name"),
    ],
)
async def test_a_key_that_says_too_little_or_too_much_is_refused(world, fields, at_fault):
    admin = await world.caller(TENANT, "admin", "admin")
    error = await refusal(admin.keys.create(**{"roles": ["writer"], **fields}))
    assert (lorebank.InvalidArgument, at_fault) == (type(error), error.violations[0].field)


@pytest.mark.parametrize("other", [RIVAL, "default", "no-space"])
async def test_a_tenants_admin_governs_its_own_space_alone(world, other):
    secret = (await world.key(TENANT, "admin", "admin")).secret
    foreign = (await world.key(RIVAL, "alice")).key.id
    missing = (lorebank.NotFound, "SPACE_NOT_FOUND")
    async with AsyncClient(world.address, api_key=secret, space=other) as there:
        assert missing == await refused(there.keys.create("mallory", roles=["reader"]))
        assert missing == await refused(anext(aiter(there.keys.list())))
        assert missing == await refused(there.keys.revoke(foreign))
        assert missing == await refused(there.spaces.get())
        assert missing == await refused(there.spaces.update(lorebank.Space(id=other), mask=["display_name"]))
        assert missing == await refused(there.spaces.delete(other))
        assert missing == await refused(there.find("anything"))
    here = world.client(secret)
    assert (lorebank.NotFound, "KEY_NOT_FOUND") == await refused(here.keys.revoke(foreign))
    assert (lorebank.PermissionDenied, "OPERATOR_REQUIRED") == await refused(here.spaces.create("mine-too"))
    assert [TENANT] == [space.id async for space in here.spaces.list()]
    assert {TENANT} == {space.id async for space in here.spaces.list(page_size=1)}


async def test_an_operator_governs_every_space_and_reads_none(world):
    alice = await world.caller(TENANT, "alice")
    stored = (await alice.store("Alice shares this with her team.", scope="team")).memory
    async with AsyncClient(world.address, api_key=world.operator, space=TENANT) as operator:
        created = await operator.keys.create("grace", roles=["reader"])
        assert created.key.id in await keys_of(operator)
        assert TENANT == (await operator.spaces.get()).id
        for call in (operator.get(stored.id), operator.find("share"), operator.store("An operator was here.")):
            assert (lorebank.NotFound, "SPACE_NOT_FOUND") == await refused(call)
    assert {TENANT, RIVAL, "default"} <= {space.id async for space in world.client().spaces.list(page_size=1)}
    assert (lorebank.NotFound, "MEMORY_NOT_FOUND") == await refused(world.client().get(stored.id))


@pytest.mark.parametrize("space", [TENANT, "default"])
async def test_an_admin_bound_to_a_project_governs_nothing(world, space):
    victim = (await world.key(space, "alice")).key.id
    bound = await world.caller(space, "admin", "admin", project="shop")
    expected = (lorebank.PermissionDenied, "UNBOUND_KEY_REQUIRED")
    for call in (
        bound.keys.create("admin", roles=["admin"]),
        bound.keys.create("admin", roles=["reader"], project="shop"),
        anext(aiter(bound.keys.list())),
        bound.keys.revoke(victim),
        bound.spaces.create("another"),
        bound.spaces.update(lorebank.Space(id=space), mask=["display_name"]),
        bound.spaces.delete(space),
    ):
        assert expected == await refused(call)
    assert space == (await bound.spaces.get()).id
    assert 4 == (await bound.store("The shop's admin speaks to all.", scope="global")).memory.scope


async def test_a_bound_admin_of_the_operators_space_is_no_operator(world):
    bound = await world.caller("default", "admin", "admin", project="shop")
    assert (lorebank.NotFound, "SPACE_NOT_FOUND") == await refused(bound.spaces.get(TENANT))
    assert ["default"] == [space.id async for space in bound.spaces.list()]
