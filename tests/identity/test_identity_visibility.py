"""Who sees which memory: one promise, held on every path that reads."""

import pytest
from identity_memories import MORE_THAN_ALL, READ_PATHS, RIVAL, TENANT, TOPIC, VIEWERS, Library
from identity_world import governed_world, refusal, told

from lorebank import NotFound

UNKNOWN = "unknown0"


@pytest.fixture(scope="module")
async def library(database_factory, embedder):
    async with governed_world(database_factory, embedder, TENANT, RIVAL) as world:
        filled = Library(world)
        await filled.fill()
        yield filled


@pytest.mark.parametrize("path", READ_PATHS, ids=lambda path: path.__name__)
@pytest.mark.parametrize("viewer", VIEWERS)
async def test_a_path_shows_what_the_credential_may_see_and_no_more(library, viewer, path):
    got = library.names(await path(library, library.clients[viewer]))
    assert library.seen_by(viewer) == got


def test_every_viewer_has_something_to_miss(library):
    assert all(len(library.seen_by(viewer)) < len(library.facts) for viewer in VIEWERS)
    assert set() == library.seen_by("operator")


@pytest.mark.parametrize("viewer", VIEWERS)
@pytest.mark.parametrize("scope", ["user", "project", "team", "global"])
@pytest.mark.parametrize("project", ["", "shop", "blog"])
async def test_a_selector_narrows_and_never_widens(library, viewer, scope, project):
    def selected(fact):
        return fact.scope == scope and project in {"", fact.project}

    expected = library.seen_by(viewer, selected)
    client = library.clients[viewer]
    narrow = {"scopes": [scope], "project": project}
    found = await client.find(TOPIC, limit=MORE_THAN_ALL, skip_usage=True, **narrow)
    assert expected == library.names({memory.id async for memory in client.list(**narrow)})
    assert expected == library.names({hit.memory.id for hit in found.hits})


@pytest.mark.parametrize("viewer", VIEWERS)
async def test_a_selector_that_names_another_owner_finds_only_what_is_shared(library, viewer):
    expected = library.seen_by(viewer, lambda fact: fact.owner == "bob")
    client = library.clients[viewer]
    assert expected == library.names({memory.id async for memory in client.list(owners=["bob"])})


@pytest.mark.parametrize("viewer", VIEWERS)
async def test_what_is_counted_is_what_is_seen(library, viewer):
    pages = [page async for page in library.clients[viewer].list(page_size=7).pages()]
    assert {len(library.seen_by(viewer))} == {page.total_size for page in pages}


CALLS_BY_ID = {
    "get": lambda client, one: client.get(one),
    "history": lambda client, one: collected(client.history(one)),
    "similar_to": lambda client, one: client.find(similar_to=one),
    "graph": lambda client, one: client.graph(one),
    "update": lambda client, one: client.update(one, content="The checkout service is no longer deployed."),
    "delete": lambda client, one: client.delete(one),
    "undelete": lambda client, one: client.undelete(one),
    "supersede": lambda client, one: client.supersede(one, "The checkout service moved to another platform."),
    "cite": lambda client, one: client.cite(one, run="a run"),
    "upvote": lambda client, one: client.upvote(one),
    "retract": lambda client, one: client.retract(one),
    "link": lambda client, one: client.store("The checkout service has an heir.", links=[("related_to", one)]),
    "rehearsed link": lambda client, one: client.store(
        "The checkout service has an heir.", links=[("related_to", one)], validate_only=True
    ),
}


async def collected(pages):
    return [each async for each in pages]


HIDDEN = {
    "another's of scope USER": ("alice", f"{TENANT}-user-bob-anywhere"),
    "another's of scope PROJECT": ("alice", f"{TENANT}-project-bob-shop"),
    "one's own of another project": ("alice-in-shop", f"{TENANT}-user-alice-blog"),
    "the team's of another project": ("alice-in-shop", f"{TENANT}-team-bob-blog"),
    "everyone's of another project": ("alice-in-shop", f"{TENANT}-global-admin-blog"),
    "a member's, to an admin": ("admin", f"{TENANT}-user-bob-anywhere"),
    "one's own in another space": ("alice", f"{RIVAL}-user-alice-anywhere"),
    "the team's of another space": ("alice", f"{RIVAL}-team-alice-anywhere"),
    "a tenant's, to the operator": ("operator", f"{TENANT}-team-bob-anywhere"),
}


@pytest.mark.parametrize(("viewer", "name"), HIDDEN.values(), ids=HIDDEN)
async def test_what_is_hidden_looks_like_what_is_not_there(library, viewer, name):
    client, hidden = library.clients[viewer], library.fact(name)
    assert name not in library.seen_by(viewer)
    for kind, call in CALLS_BY_ID.items():
        error = await refusal(call(client, hidden.id))
        assert (kind, NotFound, "MEMORY_NOT_FOUND") == (kind, type(error), error.reason)
        assert told(await refusal(call(client, UNKNOWN)), UNKNOWN) == told(error, hidden.id)


@pytest.mark.parametrize(("viewer", "name"), HIDDEN.values(), ids=HIDDEN)
async def test_a_hidden_memory_stays_as_it_was(library, viewer, name):
    hidden = library.fact(name)
    for call in CALLS_BY_ID.values():
        await refusal(call(library.clients[viewer], hidden.id))
    owner = {(TENANT, "bob"): "bob", (TENANT, "alice"): "alice", (TENANT, "admin"): "admin"}.get(
        (hidden.space, hidden.owner), "alice-elsewhere"
    )
    memory = await library.clients[owner].get(hidden.id)
    assert (1, 0, 0, "") == (memory.revision, memory.quality.upvotes, memory.usage.use_count, memory.superseded_by)


async def test_one_hidden_ballot_or_predecessor_fails_the_whole_call(library):
    alice = library.clients["alice"]
    mine, hidden = library.fact(f"{TENANT}-user-alice-shop"), library.fact(f"{TENANT}-user-bob-shop")
    await refusal(alice.supersede([mine.id, hidden.id], "The checkout service moved to another platform."))
    assert 1 == (await alice.get(mine.id)).revision


async def test_a_walk_does_not_pass_through_what_is_hidden(library):
    alice, bob = library.clients["alice"], library.clients["bob"]
    near = (await alice.store("The billing service calls the ledger.", scope="team")).memory.id
    bridge = (await alice.store("The ledger belongs to finance.", links=[("related_to", near)])).memory.id
    far = (
        await alice.store("Finance closes the books on Fridays.", scope="team", links=[("related_to", bridge)])
    ).memory
    try:
        walks = {name: await client.graph(near, hops=3) for name, client in {"alice": alice, "bob": bob}.items()}
        assert {near, bridge, far.id} == {node.memory.id for node in walks["alice"].nodes}
        assert ([near], 0, False) == (
            [node.memory.id for node in walks["bob"].nodes],
            len(walks["bob"].edges),
            walks["bob"].truncated,
        )
        assert [far.id] == [node.memory.id for node in (await bob.graph(far.id, hops=0)).nodes]
    finally:
        for memory_id in (near, bridge, far.id):
            await alice.delete(memory_id)


async def test_a_hidden_successor_is_not_named(library):
    alice, bob = library.clients["alice"], library.clients["bob"]
    shared = (await alice.store("The release train leaves at noon.", scope="team")).memory.id
    private = (await alice.supersede(shared, "The release train leaves at one.", scope="user")).memory.id
    try:
        assert private == (await alice.get(shared)).superseded_by
        assert "" == (await bob.get(shared)).superseded_by
        for call in ("update", "upvote", "supersede"):
            error = await refusal(CALLS_BY_ID[call](bob, shared))
            assert "SUPERSEDED" in {error.reason, error.metadata.get("state")}
            assert private not in str((error.message, dict(error.metadata), error.preconditions))
    finally:
        await alice.delete(private)


async def test_a_natural_key_names_ones_own_memory_first(library):
    clients = {name: library.clients[name] for name in ("alice", "bob", "admin")}
    stored = [
        await clients["admin"].store("Everyone deploys on Mondays.", key="deploy day", scope="global"),
        await clients["bob"].store("The team deploys on Tuesdays.", key="deploy day", scope="team"),
        await clients["alice"].store("Alice deploys on Wednesdays.", key="deploy day"),
    ]
    shared, team, own = (answer.memory for answer in stored)
    try:
        assert own.id == (await clients["alice"].get(key="deploy day")).id
        assert team.id == (await clients["bob"].get(key="deploy day")).id
        assert (shared.id, "global") != (team.id, "team")
    finally:
        await clients["alice"].delete(own.id)
        await clients["bob"].delete(team.id)
        await clients["admin"].delete(shared.id)
