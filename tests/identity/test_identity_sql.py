"""Row-level security by itself: SQL as the application's role, with nothing but the caller set."""

import json
from contextlib import asynccontextmanager

import asyncpg
import pytest
from identity_memories import RIVAL, TENANT, VIEWERS, Library
from identity_world import database_owner, governed_world, tables

from lorebank_server.domain.principal import Principal, Role
from lorebank_server.postgres.storage import set_caller

NEVER_READ = {
    "bucket_statistics",
    "bucket_terms",
    "keys_ever_created",
    "outbox",
    "outbox_generations",
    "schema_migrations",
    "unembedded",
    "vector_indexes",
}
FOR_GOVERNORS = {"api_keys"}
REFUSED = "refused"


@pytest.fixture(scope="module")
async def library(database_factory, embedder):
    async with governed_world(database_factory, embedder, TENANT, RIVAL) as world:
        filled = Library(world)
        await filled.fill()
        for viewer, client in filled.clients.items():
            if viewer not in {"operator", "reader"}:
                await client.upvote(*(filled.fact(name).id for name in filled.seen_by(viewer)))
                await client.find("checkout", limit=100)
        await world.running.services.usage.flush()
        yield filled


@pytest.fixture(scope="module")
async def numbers(library):
    async with database_owner(library.world.dsn) as connection:
        return {row["id"]: row["number"] for row in await connection.fetch("select id, number from spaces")}


@pytest.fixture(scope="module")
async def buckets(library):
    """Numbers of the buckets by a fact that lies in each."""
    async with database_owner(library.world.dsn) as connection:
        rows = await connection.fetch("select uid::text as uid, bucket_id from memories")
    by_uid = {row["uid"]: row["bucket_id"] for row in rows}
    return {fact.name: by_uid[fact.uid] for fact in library.facts.values()}


@asynccontextmanager
async def acting_as(library, numbers, name):
    """A connection of the application on behalf of a viewer; None acts for nobody. Nothing it does remains."""
    async with database_owner(library.world.dsn) as connection:
        await connection.execute("set role lorebank_app")
        if name:
            viewer = VIEWERS[name]
            principal = Principal(
                space_id=numbers[viewer.space],
                space=viewer.space,
                owner=viewer.owner,
                role=Role[viewer.role.upper()],
                project=viewer.project,
            )
            await set_caller(connection, principal)
        transaction = connection.transaction()
        await transaction.start()
        try:
            yield connection
        finally:
            await transaction.rollback()


async def readable(connection):
    return {
        table: columns
        for table, columns in (await tables(connection)).items()
        if await connection.fetchval("select has_table_privilege('lorebank_app', $1, 'select')", table)
    }


async def test_what_the_application_never_reads_it_cannot(library):
    async with database_owner(library.world.dsn) as connection:
        assert NEVER_READ == set(await tables(connection)) - set(await readable(connection))


@pytest.mark.parametrize("viewer", VIEWERS)
async def test_every_table_shows_a_caller_only_what_it_may_see(library, numbers, buckets, viewer):
    seen = library.seen_by(viewer)
    uids = {library.fact(name).uid for name in seen}
    space = VIEWERS[viewer].space
    allowed = {
        "memory": uids,
        "source": uids,
        "target": uids,
        "bucket_id": {buckets[name] for name in seen},
        "space_id": {numbers[space]},
        "voter": {other.owner for other in VIEWERS.values()},
    }
    operates = viewer == "operator"
    governs = VIEWERS[viewer].role == "admin" and not VIEWERS[viewer].project
    async with acting_as(library, numbers, viewer) as connection:
        for table, columns in (await readable(connection)).items():
            rows = [dict(row) for row in await connection.fetch(f"select * from {table}")]
            if table in FOR_GOVERNORS:
                assert governs == bool(rows)
                assert operates or {numbers[space]} >= {row["space_id"] for row in rows}
                continue
            own = {
                **allowed,
                **({"uid": uids} if table == "memories" else {}),
                **({"id": allowed["bucket_id"]} if table == "buckets" else {}),
                **({"number": set(numbers.values()) if operates else {numbers[space]}} if table == "spaces" else {}),
                **({"owner": {VIEWERS[viewer].owner}} if table == "answers" else {}),
            }
            for column in columns & set(own):
                shown = {str(row[column]) for row in rows}
                assert (table, column, set()) == (table, column, shown - {str(value) for value in own[column]})
            assert rows or operates or (table == "answers" and viewer == "reader")
        assert len(seen) == await connection.fetchval("select count(*) from memories")


async def test_nobody_sees_nothing(library, numbers):
    async with acting_as(library, numbers, None) as connection:
        shown = {
            table for table in await readable(connection) if await connection.fetch(f"select from {table} limit 1")
        }
        assert {"embedding_models"} == shown  # the names of models are nobody's


def fact(scope, owner="bob", project="anywhere", space=TENANT):
    return f"{space}-{scope}-{owner}-{project}"


MINE = fact("user", "alice", "shop")
BEYOND = {
    "another's": fact("user"),
    "the team's in another project": fact("team", project="blog"),
    "one's own in another project": fact("user", "alice", "blog"),
    "everyone's": fact("global", "admin"),
    "another space's": fact("team", "alice", "shop", RIVAL),
}
HIDDEN = {name: where for name, where in BEYOND.items() if name != "everyone's"}
beyond = pytest.mark.parametrize("where", BEYOND.values(), ids=BEYOND)
hidden = pytest.mark.parametrize("where", HIDDEN.values(), ids=HIDDEN)
NEW_UID = "0190a5c4-7d10-7b3e-9d43-6f1f0c2b8a11"


async def copied(connection, table, changes, where):
    """Insert a copy of a visible row with some columns changed; how many rows that made, or REFUSED."""
    statement = (
        f"insert into {table} select (jsonb_populate_record(t, $1::jsonb)).* from {table} t where {where} limit 1"
    )
    return await tried(connection, statement, json.dumps(changes))


async def tried(connection, statement, *arguments):
    try:
        async with connection.transaction():
            status = await connection.execute(statement, *arguments)
    except asyncpg.InsufficientPrivilegeError:
        return REFUSED
    return int(status.rpartition(" ")[2])


@pytest.fixture
async def alice(library, numbers):
    """Alice's connection, bound to the shop."""
    async with acting_as(library, numbers, "alice-in-shop") as connection:
        yield connection


async def test_an_insert_in_ones_own_place_is_let_through(library, alice):
    mine = library.fact(MINE).uid
    new = {"uid": NEW_UID, "id": "newmemor", "key": None}
    assert 1 == await copied(alice, "memories", new, f"uid = '{mine}'")
    assert 1 == await copied(alice, "revisions", {"memory": NEW_UID}, f"memory = '{mine}'")
    assert 1 == await copied(alice, "embeddings", {"memory": NEW_UID}, f"memory = '{mine}'")
    assert 1 == await copied(alice, "relations", {"id": "newrelat", "type": "mentions"}, f"source = '{mine}'")
    assert 1 == await copied(alice, "ballots", {"run": "another"}, f"memory = '{mine}' and voter = 'alice'")
    assert 1 == await copied(alice, "answers", {"request_id": "another"}, "true")


@beyond
async def test_no_memory_gets_into_a_bucket_beyond_the_caller(library, buckets, alice, where):
    mine = f"uid = '{library.fact(MINE).uid}'"
    new = {"uid": NEW_UID, "id": "newmemor", "key": None, "bucket_id": buckets[where]}
    assert REFUSED == await copied(alice, "memories", new, mine)
    assert REFUSED == await tried(alice, f"update memories set bucket_id = {buckets[where]} where {mine}")
    vector = f"memory = '{library.fact(MINE).uid}'"
    assert REFUSED == await copied(alice, "embeddings", {"memory": NEW_UID, "bucket_id": buckets[where]}, vector)
    assert REFUSED == await tried(alice, f"update embeddings set bucket_id = {buckets[where]} where {vector}")


@beyond
async def test_no_memory_beyond_the_caller_is_changed(library, alice, where):
    there, mine = library.fact(where).uid, library.fact(MINE).uid
    assert 0 == await tried(alice, f"update memories set state = 5 where uid = '{there}'")
    assert 0 == await tried(alice, f"update embeddings set found_until = now() where memory = '{there}'")
    assert 0 == await tried(alice, f"delete from embeddings where memory = '{there}'")
    assert REFUSED == await tried(alice, f"delete from memories where uid = '{there}'")
    history = {"memory": there, "revision": 99}
    assert REFUSED == await copied(alice, "revisions", history, f"memory = '{mine}'")
    assert REFUSED == await copied(alice, "embeddings", {"memory": there}, f"memory = '{mine}'")
    edge = {"id": "newrelat", "source": there}
    assert REFUSED == await copied(alice, "relations", edge, f"source = '{mine}'")


@hidden
async def test_nothing_points_to_a_hidden_memory(library, alice, where):
    there, mine = library.fact(where).uid, library.fact(MINE).uid
    edge = {"id": "newrelat", "target": there}
    assert REFUSED == await copied(alice, "relations", edge, f"source = '{mine}'")
    ballot = {"memory": there, "run": "another"}
    assert REFUSED == await copied(alice, "ballots", ballot, f"memory = '{mine}' and voter = 'alice'")
    assert 0 == await tried(alice, f"delete from ballots where memory = '{there}'")
    assert 0 == await tried(alice, f"delete from relations where source = '{there}'")


@pytest.mark.parametrize(
    ("space", "scope", "owner", "project"),
    [
        pytest.param(TENANT, 1, "bob", "", id="another's"),
        pytest.param(TENANT, 1, "alice", "blog", id="another project's"),
        pytest.param(TENANT, 3, "", "blog", id="the team's in another project"),
        pytest.param(TENANT, 3, "alice", "shop", id="the team's, owned"),
        pytest.param(TENANT, 4, "", "shop", id="everyone's"),
        pytest.param(RIVAL, 1, "alice", "shop", id="another space's"),
    ],
)
async def test_no_bucket_opens_beyond_the_caller(numbers, alice, space, scope, owner, project):
    statement = "insert into buckets (space_id, scope, owner, project) values ($1, $2, $3, $4)"
    assert REFUSED == await tried(alice, statement, numbers[space], scope, owner, project)


async def test_nothing_moves_to_another_space_or_another_name(library, numbers, alice):
    mine, other = library.fact(MINE).uid, numbers[RIVAL]
    for table, of_mine in {
        "memories": f"uid = '{mine}'",
        "embeddings": f"memory = '{mine}'",
        "ballots": f"memory = '{mine}' and voter = 'alice'",
        "answers": "true",
    }.items():
        assert REFUSED == await tried(alice, f"update {table} set space_id = {other} where {of_mine}")
    assert REFUSED == await tried(alice, "update ballots set voter = 'bob' where voter = 'alice'")
    assert REFUSED == await tried(alice, "update answers set owner = 'bob'")
    assert REFUSED == await tried(alice, "update usages set use_count = 0")
    assert REFUSED == await tried(alice, "update revisions set actor = 'bob'")
    ballot = {"voter": "bob", "run": "another"}
    assert REFUSED == await copied(alice, "ballots", ballot, f"memory = '{mine}' and voter = 'alice'")
    assert REFUSED == await copied(alice, "answers", {"owner": "bob"}, "true")


async def test_a_reader_writes_nothing(library, numbers):
    seen = library.fact(f"{TENANT}-hub").uid
    async with acting_as(library, numbers, "reader") as carol:
        new = {"uid": NEW_UID, "id": "newmemor", "key": None}
        assert REFUSED == await copied(carol, "memories", new, f"uid = '{seen}'")
        assert 0 == await tried(carol, f"update memories set state = 5 where uid = '{seen}'")
        assert REFUSED == await copied(carol, "revisions", {"revision": 99}, f"memory = '{seen}'")
        assert REFUSED == await copied(carol, "relations", {"id": "newrelat", "type": "mentions"}, "true")
        assert REFUSED == await copied(carol, "ballots", {"voter": "carol"}, f"memory = '{seen}'")
        statement = "insert into buckets (space_id, scope, owner, project) values ($1, 1, 'carol', '')"
        assert REFUSED == await tried(carol, statement, numbers[TENANT])


NEW_KEY = (
    "insert into api_keys (id, space_id, secret_hash, owner, roles, create_time) "
    "values ('newkey00', $1, '', 'x', '{4}', now())"
)
NEW_SPACE = (
    "insert into spaces (id, default_confidence, stale_threshold, quality_policy, language, create_time) "
    "values ('new', 1, 0, 'none', 'simple', now())"
)


@pytest.mark.parametrize("viewer", VIEWERS)
async def test_spaces_and_keys_are_governed_by_who_may(library, numbers, viewer):
    unbound_admin = VIEWERS[viewer].role == "admin" and not VIEWERS[viewer].project
    operates = viewer == "operator"
    async with acting_as(library, numbers, viewer) as connection:
        for space, number in numbers.items():
            governs = operates or (unbound_admin and space == VIEWERS[viewer].space)
            assert (1 if governs else REFUSED) == await tried(connection, NEW_KEY, number)
            renamed = f"update spaces set display_name = 'x' where number = {number}"
            assert int(governs) == await tried(connection, renamed)
            counted = await connection.fetchval("select memories from space_contents($1)", number)
            there = sum(each.space == space for each in library.facts.values())
            assert (there if governs else 0) == counted
            if governs:
                break
        assert (1 if operates else REFUSED) == await tried(connection, NEW_SPACE)
        if unbound_admin and not operates:
            assert REFUSED == await tried(connection, f"update api_keys set space_id = {numbers[RIVAL]}")
        gone = await tried(connection, "delete from spaces")
        assert (len(numbers) + 1 if operates else int(unbound_admin)) == gone
