"""Where a credential may write: its project or none, and GLOBAL for admins alone."""

import pytest
from identity_world import governed_world, refusal

import lorebank

TENANT = "acme"
DENIED = {"project": (lorebank.PermissionDenied, "PROJECT_NOT_ALLOWED")}


@pytest.fixture(scope="module")
async def world(database_factory, embedder):
    async with governed_world(database_factory, embedder, TENANT) as opened:
        yield opened


@pytest.fixture(scope="module")
async def bound(world):
    return await world.caller(TENANT, "alice", project="shop")


@pytest.fixture(scope="module")
async def writer(world):
    return await world.caller(TENANT, "bob")


@pytest.fixture(scope="module")
async def admin(world):
    return await world.caller(TENANT, "admin", "admin")


async def refused(call):
    error = await refusal(call)
    return type(error), error.reason


@pytest.mark.parametrize("scope", ["user", "project", "team", "global"])
async def test_a_bound_key_does_not_write_into_another_project(bound, scope):
    how = {"scope": scope, "project": "blog"}
    assert DENIED["project"] == await refused(bound.store("The blog is deployed by hand.", **how))
    assert DENIED["project"] == await refused(bound.store("The blog is deployed by hand.", validate_only=True, **how))
    (item,) = [each async for each in bound.store_many([lorebank.Memory(content="By hand.", project="blog", scope=1)])]
    assert (7, "PROJECT_NOT_ALLOWED") == (item.failure.code, item.failure.reason)


@pytest.mark.parametrize(("scope", "project"), [("user", ""), ("user", "shop"), ("project", "shop"), ("team", "shop")])
async def test_a_bound_key_writes_into_its_project_or_none(bound, scope, project):
    stored = await bound.store(f"The shop's {scope} {project} deploys.", scope=scope, project=project)
    assert project == stored.memory.project


@pytest.mark.parametrize("scope", ["project", "team"])
async def test_what_a_bound_key_shares_is_of_its_project(bound, writer, scope):
    stored = (await bound.store(f"The shop shares {scope}.", scope=scope)).memory
    assert "shop" == stored.project
    assert (scope == "team") == (stored.id in {memory.id async for memory in writer.list(project="shop")})


async def test_a_bound_key_does_not_supersede_into_another_project(bound):
    mine = (await bound.store("The shop opens at nine.")).memory.id
    call = bound.supersede(mine, "The shop opens at ten.", project="blog", scope="team")
    assert DENIED["project"] == await refused(call)


@pytest.mark.parametrize("scope", ["user", "team"])
async def test_a_successor_reaches_whoever_saw_the_old_memory(world, bound, scope):
    unbound = await world.caller(TENANT, "alice")
    old = (await unbound.store(f"The office of {scope} opens at nine.", scope=scope)).memory
    new = (await bound.supersede(old.id, f"The office of {scope} opens at ten.")).memory
    assert (old.scope, "") == (new.scope, new.project)
    others = await world.caller(TENANT, "alice", project="blog")
    assert new.id == (await others.get(new.id)).id


async def test_only_admins_write_what_everyone_reads(writer, admin):
    refusal_expected = (lorebank.PermissionDenied, "ADMIN_REQUIRED")
    shared = (await admin.store("Releases are announced on Mondays.", scope="global")).memory.id
    own = (await writer.store("Bob announces on Tuesdays.", scope="team")).memory.id
    calls = [
        writer.store("Everyone announces on Fridays.", scope="global"),
        writer.update(shared, content="Releases are announced on Tuesdays."),
        writer.delete(shared),
        writer.supersede(shared, "Releases are announced on Tuesdays."),
        writer.supersede(shared, "Releases are announced on Tuesdays.", scope="user"),
        writer.supersede([own, shared], "Releases are announced on Tuesdays."),
        writer.supersede(own, "Releases are announced on Tuesdays.", scope="global"),
    ]
    assert [refusal_expected] * len(calls) == [await refused(call) for call in calls]
    assert 2 == (await admin.update(shared, content="Releases are announced at noon.")).memory.revision
    assert 3 == (await admin.delete(shared)).revision
    assert refusal_expected == await refused(writer.undelete(shared))
    assert 4 == (await admin.undelete(shared)).revision
    assert 4 == (await admin.supersede(shared, "Releases are announced daily.")).memory.scope


async def test_everyone_who_writes_votes_on_what_everyone_reads(world, admin):
    shared = (await admin.store("Incidents are announced at once.", scope="global")).memory.id
    voters = [await world.caller(TENANT, f"voter {number}", project=f"p{number}") for number in range(3)]
    for voter in voters:
        await voter.upvote(shared)
    await voters[0].retract(shared)
    reader = await world.caller(TENANT, "carol", "reader")
    assert 2 == (await reader.get(shared)).quality.upvotes
    assert (lorebank.PermissionDenied, "ROLE_REQUIRED") == await refused(reader.upvote(shared))


async def test_a_link_to_what_everyone_reads_is_the_writers_to_make(writer, admin):
    shared = (await admin.store("Runbooks live in the wiki.", scope="global")).memory.id
    own = (await writer.store("Bob's runbook is in the wiki.", links=[("related_to", shared)])).memory.id
    assert {shared, own} == {node.memory.id for node in (await writer.graph(shared)).nodes}
    assert [shared] == [node.memory.id for node in (await admin.graph(shared)).nodes]


async def test_members_of_a_team_correct_each_others_memories(world, writer):
    carol = await world.caller(TENANT, "carol")
    shared = (await writer.store("The team meets at nine.", scope="team")).memory.id
    corrected = (await carol.update(shared, content="The team meets at ten.")).memory
    assert ("bob", 2) == (corrected.owner, corrected.revision)


async def test_an_owner_of_the_same_name_in_another_project_holds_a_key_unseen(world):
    blog = await world.caller(TENANT, "dora", project="blog")
    shop = await world.caller(TENANT, "dora", project="shop")
    await blog.store("Dora deploys the blog.", key="dora's way", scope="project")
    error = await refusal(shop.store("Dora deploys the shop.", key="dora's way", scope="project"))
    assert (lorebank.AlreadyExists, "KEY_TAKEN", {}) == (type(error), error.reason, dict(error.metadata))


async def test_a_request_id_of_another_project_gives_nothing_away(world):
    secret_of = {}
    request_id = "0190a5c4-7d10-7b3e-9d43-6f1f0c2b8a11"
    for project in ("", "shop"):
        secret_of[project] = await world.caller(TENANT, "erin", project=project)
    content = {"content": "Erin deploys the blog.", "project": "blog", "scope": "project"}
    await secret_of[""].store(**content, request_id=request_id)
    assert DENIED["project"] == await refused(secret_of["shop"].store(**content, request_id=request_id))
    error = await refusal(secret_of["shop"].store("Erin deploys the shop.", request_id=request_id))
    assert (lorebank.AlreadyExists, "REQUEST_ID_REUSED") == (type(error), error.reason)
