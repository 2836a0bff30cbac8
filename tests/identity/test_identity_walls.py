"""Two walls, each standing alone: the filter that every query carries, and row-level security under it."""

import pytest
from identity_memories import MORE_THAN_ALL, READ_PATHS, RIVAL, TENANT, TOPIC, VIEWERS, Library, every_bucket
from identity_world import database_owner, governed_world

from lorebank.v1.memory_pb2 import Memory, Scope
from lorebank_server.postgres import pool
from lorebank_server.postgres.read_session import PostgresReadSession

BY_QUERY = [path for path in READ_PATHS if path.__name__.startswith(("listed", "found"))]
CONTENTS = [
    "The checkout service is deployed by a pipeline that Alice owns.",
    "Checkout talks to billing, and billing to the ledger.",
    "The pipeline of the ledger is slow on Fridays.",
]
NOISE = [
    f"{content} Pipeline, checkout and ledger, for the {number}. time." for content in CONTENTS for number in range(9)
]


@pytest.fixture(scope="module")
async def library(database_factory, embedder):
    async with governed_world(database_factory, embedder, TENANT, RIVAL) as world:
        filled = Library(world)
        await filled.fill()
        yield filled


@pytest.fixture
async def without_filter(library, monkeypatch):
    """Queries that take every bucket of every space for visible."""
    buckets = await every_bucket(library.world.dsn)

    async def all_of_them(_session, _selector):
        return buckets

    monkeypatch.setattr(PostgresReadSession, "_visible_buckets", all_of_them)


@pytest.fixture
async def without_policies(library, monkeypatch):
    """A server whose connections stay the owner's, so that no policy holds for them."""
    async with database_owner(library.world.dsn) as connection:
        monkeypatch.setattr(pool, "APPLICATION_ROLE", await connection.fetchval("select current_user"))
    async with library.world.another_server() as unwalled:
        yield unwalled


@pytest.mark.parametrize("path", BY_QUERY, ids=lambda path: path.__name__)
@pytest.mark.parametrize("viewer", VIEWERS)
@pytest.mark.usefixtures("without_filter")
async def test_without_the_filter_row_level_security_still_hides(library, viewer, path):
    got = library.names(await path(library, library.clients[viewer]))
    assert library.seen_by(viewer) == got


@pytest.mark.parametrize("viewer", VIEWERS)
@pytest.mark.usefixtures("without_filter")
async def test_without_the_filter_nothing_hidden_is_counted(library, viewer):
    found = await library.clients[viewer].find(TOPIC, min_similarity=1.0, skip_usage=True)
    pages = [page async for page in library.clients[viewer].list(page_size=1).pages()]
    assert (0, len(library.seen_by(viewer))) == (len(found.hits), found.below_threshold)
    assert len(library.seen_by(viewer)) == sum(len(page.memories) for page in pages)


async def test_without_row_level_security_the_filter_still_hides(library, without_policies):
    for viewer, secret in library.secrets.items():
        for path in BY_QUERY:
            if "similar" not in path.__name__:  # a memory is read by its id, where row-level security is alone
                got = library.names(await path(library, without_policies.client(secret)))
                assert (viewer, path, library.seen_by(viewer)) == (viewer, path, got)


@pytest.mark.usefixtures("without_filter")
async def test_without_either_wall_these_tests_would_notice(library, without_policies):
    got = {memory.id async for memory in without_policies.client(library.secrets["bob"]).list()}
    assert library.seen_by("bob") < library.names(got)


async def answers(client):
    """What is found, to the byte, but for the id of the answer."""
    found = {}
    for mode in ("hybrid", "semantic", "lexical"):
        answer = await client.find("deployed checkout pipeline", mode=mode, limit=MORE_THAN_ALL, skip_usage=True)
        answer.ClearField("retrieval")
        found[mode] = answer.SerializeToString(deterministic=True)
    return found


async def test_scores_do_not_tell_what_others_store(database_factory, embedder):
    async with governed_world(database_factory, embedder, TENANT, RIVAL) as world:
        callers = {
            "alice": await world.caller(TENANT, "alice"),
            "alice-in-shop": await world.caller(TENANT, "alice", project="shop"),
            "bob": await world.caller(TENANT, "bob"),
            "alice-in-blog": await world.caller(TENANT, "alice", project="blog"),
            "rival": await world.caller(RIVAL, "alice"),
        }
        for scope, project in (("user", "shop"), ("user", ""), ("team", "")):
            for content in CONTENTS:
                await callers["alice"].store(f"{content} {scope} {project}", scope=scope, project=project)
        before = {name: await answers(callers[name]) for name in ("alice", "alice-in-shop")}
        hidden_from_both = [("bob", "user"), ("bob", "project"), ("rival", "user"), ("rival", "team")]
        for writer, scope in hidden_from_both:
            await store_noise(callers[writer], scope)
        assert before == {name: await answers(callers[name]) for name in before}
        for writer, scope in (("bob", "team"), ("alice-in-blog", "team"), ("alice-in-blog", "user")):
            await store_noise(callers[writer], scope, project="blog")
        assert before["alice-in-shop"] == await answers(callers["alice-in-shop"])
        assert before["alice"] != await answers(callers["alice"])


async def store_noise(client, scope, project="shop"):
    noise = [Memory(content=each, scope=Scope.Value(f"SCOPE_{scope.upper()}"), project=project) for each in NOISE]
    async for item in client.store_many(noise):
        assert item.response.memory.id, item.failure.message
