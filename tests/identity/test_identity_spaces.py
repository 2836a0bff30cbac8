"""Spaces come and go whole."""

import pytest
from identity_world import database_owner, governed_world, refusal, tables

import lorebank
from lorebank import AsyncClient, Space

GONE = (lorebank.NotFound, "SPACE_NOT_FOUND")


@pytest.fixture(scope="module")
async def world(database_factory, embedder):
    async with governed_world(database_factory, embedder) as opened:
        yield opened


async def refused(call):
    error = await refusal(call)
    return type(error), error.reason


async def deleted(operator, space):
    counted = await operator.spaces.delete(space)
    return await operator.spaces.delete(space, confirm=counted.digest)


async def rows(world, space=None):
    """Rows of every table, or those that name a space by its number."""
    counts = {}
    async with database_owner(world.dsn) as connection:
        for table, columns in (await tables(connection)).items():
            if space is None:
                counts[table] = await connection.fetchval(f"select count(*) from {table}")
            elif named := columns & {"space_id", "number"} if table != "schema_migrations" else None:
                counts[table] = await connection.fetchval(
                    f"select count(*) from {table} where {named.pop()} = $1", space
                )
    return counts


@pytest.mark.parametrize(
    "space_id", ["a", "0", "acme-2", "x" * 64], ids=["one letter", "a digit", "words", "as long as may be"]
)
async def test_a_slug_names_a_space(world, space_id):
    created = await world.client().spaces.create(Space(id=space_id, display_name="Acme"))
    assert (space_id, "Acme") == (created.id, created.display_name)
    assert (await deleted(world.client(), space_id)).done


@pytest.mark.parametrize("space_id", ["", "-acme", "Acme", "a b", "a_b", "a/b", "a.b", "ä", "x" * 65, "a\n"])
async def test_anything_else_does_not(world, space_id):
    error = await refusal(world.client().spaces.create(space_id))
    assert (lorebank.InvalidArgument, "space.id") == (type(error), error.violations[0].field)


async def test_a_slug_names_one_space(world):
    operator = world.client()
    await operator.spaces.create("twice")
    for taken in ("twice", "default"):
        assert (lorebank.AlreadyExists, "SPACE_EXISTS") == await refused(operator.spaces.create(taken))


async def test_a_tenants_admin_changes_its_space_under_an_etag(world):
    await world.client().spaces.create("renamed")
    admin = await world.caller("renamed", "admin", "admin")
    first = await admin.spaces.get()
    named = await admin.spaces.update(Space(id="renamed", display_name="One", etag=first.etag), mask=["display_name"])
    stale = Space(id="renamed", display_name="Two", etag=first.etag)
    assert (lorebank.Aborted, "ETAG_MISMATCH") == await refused(admin.spaces.update(stale, mask=["display_name"]))
    same = await admin.spaces.update(Space(id="renamed", display_name="One"), mask=["display_name"])
    assert (named.etag, "One") == (same.etag, (await admin.spaces.get()).display_name)
    assert first.etag != named.etag


async def test_a_tenants_admin_deletes_its_space_in_two_steps(world):
    await world.client().spaces.create("closing")
    admin = await world.caller("closing", "admin", "admin")
    counted = await admin.spaces.delete("closing")
    assert (0, False, 64) == (counted.memories, counted.done, len(counted.digest))
    assert "closing" == (await admin.spaces.get()).id
    assert (await admin.spaces.delete("closing", confirm=counted.digest)).done
    assert lorebank.Unauthenticated is (await refused(admin.spaces.get()))[0]
    assert GONE == await refused(world.client().spaces.get("closing"))
    assert GONE == await refused(world.client().spaces.delete("closing", confirm=counted.digest))


async def test_a_digest_holds_for_what_was_counted(world):
    operator = world.client()
    await operator.spaces.create("changing")
    alice = await world.caller("changing", "alice")
    private = (await alice.store("Alice keeps this to herself.")).memory.id
    outdated = [await operator.spaces.delete("changing")]
    await alice.store("Alice keeps this to herself, too.")
    outdated.append(await operator.spaces.delete("changing"))
    await alice.update(private, content="Alice keeps this to herself for now.")
    outdated.append(await operator.spaces.delete("changing"))
    await alice.delete(private)
    counted = await operator.spaces.delete("changing")
    assert [1, 2, 2, 2] == [each.memories for each in (*outdated, counted)]
    for digest in [*(each.digest for each in outdated), "0" * 64]:
        error = await refusal(operator.spaces.delete("changing", confirm=digest))
        assert (lorebank.FailedPrecondition, "changing") == (type(error), error.preconditions[0].subject)
    assert (await operator.spaces.delete("changing", confirm=counted.digest)).done


async def test_the_digest_of_one_space_does_not_delete_another(world):
    operator = world.client()
    for space in ("left", "right"):
        await operator.spaces.create(space)
    counted = await operator.spaces.delete("left")
    assert lorebank.FailedPrecondition is (await refused(operator.spaces.delete("right", confirm=counted.digest)))[0]


@pytest.mark.parametrize("confirm", ["", "0" * 64])
async def test_the_operators_space_stays(world, confirm):
    call = world.client().spaces.delete("default", confirm=confirm)
    assert (lorebank.FailedPrecondition, "SPACE_REQUIRED") == await refused(call)


async def test_a_space_to_delete_is_always_named(world):
    assert lorebank.InvalidArgument is (await refused(world.client().spaces.delete("")))[0]


async def test_nothing_of_a_deleted_space_remains_and_nothing_else_goes(world):
    operator = world.client()
    await operator.spaces.create("kept")
    await filled(world, "kept")
    before = await rows(world)
    created = await operator.spaces.create("doomed")
    await filled(world, "doomed")
    async with database_owner(world.dsn) as connection:
        number = await connection.fetchval("select number from spaces where id = $1", created.id)
        await connection.execute(
            "with s as (insert into bucket_statistics select id, space_id, 1, 1, 1, now() from buckets "
            "where space_id = $1 returning bucket_id) insert into bucket_terms select bucket_id, 'term', 1 from s",
            number,
        )
        await connection.execute("insert into vector_indexes values ($1, 1, 1, true, now())", number)
        await connection.execute(
            "insert into unembedded select uid, space_id, 0, 'infinity' from memories where space_id = $1", number
        )
    there = await rows(world, number)
    assert set() == {table for table, count in there.items() if not count} - {"embedding_models", "outbox"}
    assert (await deleted(operator, "doomed")).done
    assert dict.fromkeys(there, 0) | {"embedding_models": there["embedding_models"]} == await rows(world, number)
    assert before == await rows(world)


async def filled(world, space):
    """Something in every table."""
    alice = await world.caller(space, "alice")
    stored = (await alice.store(f"The {space} is written about.", scope="team")).memory
    linked = (await alice.store(f"The {space} is linked.", links=[("related_to", stored.id)])).memory
    await alice.update(linked.id, content=f"The {space} is corrected.")
    await alice.supersede(linked.id, f"The {space} is replaced.")
    await alice.upvote(stored.id)
    await alice.find("written about")
    await world.running.services.usage.flush()


async def test_a_new_space_of_an_old_name_does_not_know_the_old_keys(world):
    operator = world.client()
    await operator.spaces.create("again")
    old = {role: await world.caller("again", "alice", role) for role in ("writer", "admin")}
    stored = (await old["writer"].store("This was stored the first time.", scope="team")).memory
    await deleted(operator, "again")

    async def assert_locked_out():
        for client in old.values():
            for call in (client.get(stored.id), client.spaces.get(), anext(aiter(client.spaces.list()))):
                assert lorebank.Unauthenticated is (await refused(call))[0]

    await assert_locked_out()
    await operator.spaces.create("again")
    await assert_locked_out()
    world.clock.advance(seconds=30)
    await assert_locked_out()
    alice = await world.caller("again", "alice", "admin")
    assert lorebank.NotFound is (await refused(alice.get(stored.id)))[0]
    assert 1 == len([key async for key in alice.keys.list()])


async def test_a_space_deleted_by_another_server_is_closed_here_too(world):
    operator = world.client()
    await operator.spaces.create("elsewhere")
    alice = await world.caller("elsewhere", "alice", "admin")
    await alice.spaces.get()
    async with world.another_server() as other:
        await deleted(other.client(), "elsewhere")
    await operator.spaces.create("elsewhere")
    assert (lorebank.Unauthenticated, "SPACE_DELETED") == await refused(alice.get("anything"))
    assert GONE == await refused(alice.spaces.get())
    assert GONE == await refused(alice.keys.create("alice", roles=["admin"]))
    world.clock.advance(seconds=6)
    assert (lorebank.Unauthenticated, "KEY_UNKNOWN") == await refused(alice.get("anything"))


async def test_spaces_are_listed_in_order_page_by_page(world):
    operator = world.client()
    for space in ("page-b", "page-a", "page-c"):
        await operator.spaces.create(space)
    pages = [[space.id for space in page.spaces] async for page in operator.spaces.list(page_size=2).pages()]
    ids = [space for page in pages for space in page]
    assert sorted(ids) == ids
    assert {"default", "page-a", "page-b", "page-c"} <= set(ids)
    assert {2} == {len(page) for page in pages[:-1]}


async def test_another_space_is_named_in_a_client_and_governed(world):
    await world.client().spaces.create("governed")
    async with AsyncClient(world.address, api_key=world.operator, space="governed") as operator:
        assert "governed" == (await operator.spaces.get()).id
        changed = await operator.spaces.update(Space(id="governed", display_name="G"), mask=["display_name"])
        assert "G" == changed.display_name
