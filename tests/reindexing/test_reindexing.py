"""Reindex: to the end, to another model and back, refused and repeated, on either backend."""

import asyncio

import pytest
from reindexing_world import FACTS, FIRST, SECOND, World, check_progress

from lorebank import Aborted, AsyncClient, InvalidArgument, NotFound, PermissionDenied, Unavailable


async def test_a_space_moves_to_another_model_and_back(world: World) -> None:
    ids = await world.store(*FACTS)
    check_progress(await world.reindex(SECOND))
    assert (len(FACTS), len(FACTS)) == (world.told[-1].done, world.told[-1].total)
    assert {(SECOND, 80): len(FACTS)} == await world.vectors()
    for memory, fact in zip(ids, FACTS, strict=True):
        answer = await world.client.find(fact, mode="semantic", limit=1)
        assert memory == answer.hits[0].memory.id
        text = next(text for text in world.second.embedded if fact in text)
        expected = float(world.second.vector(fact) @ world.second.vector(text))
        assert answer.hits[0].parts.similarity == pytest.approx(expected, abs=2e-3)
    space = await world.client.spaces.get()
    assert (SECOND, 80, 2) == (space.embedding.model, space.embedding.dimensions, space.embedding.generation)

    # What is written now has vectors of that model at once.
    (later,) = await world.store("The lighthouse is painted every spring.")
    await world.client.update(ids[0], content="The mill is closed for good.")
    assert {(SECOND, 80): len(FACTS) + 1} == await world.vectors()
    assert later == await world.nearest("lighthouse painted spring")
    assert ids[0] == await world.nearest("mill closed for good")

    check_progress(await world.reindex(FIRST))
    assert {(FIRST, 48): len(FACTS) + 1} == await world.vectors()
    assert later == await world.nearest("lighthouse painted spring")


async def test_with_the_present_model_vectors_are_kept_and_missing_ones_made(world: World) -> None:
    ids = await world.store(*FACTS)
    await world.connection.execute(
        "delete from embeddings where memory = (select uid from memories where id = $1)", ids[3]
    )
    before = len(world.first.embedded)
    check_progress(await world.reindex())
    assert before + 1 == len(world.first.embedded)
    assert {(FIRST, 48): len(FACTS)} == await world.vectors()
    assert ids[3] == await world.nearest(FACTS[3])
    assert 2 == (await world.client.spaces.get()).embedding.generation
    check_progress(await world.reindex(FIRST))
    assert before + 1 == len(world.first.embedded)


async def test_an_empty_space_moves_too_and_is_ready_for_its_first_memory(world: World) -> None:
    check_progress(await world.reindex(SECOND))
    assert "" == await world.nearest("anything")
    (memory,) = await world.store(FACTS[0])
    assert memory == await world.nearest(FACTS[0])
    assert {(SECOND, 80): 1} == await world.vectors()


async def test_other_spaces_stay_where_they_are(world: World) -> None:
    await world.store(*FACTS)
    await world.client.spaces.create("annexe")
    async with AsyncClient(f"127.0.0.1:{world.running.port}", space="annexe") as local:
        annexe_key = (await local.keys.create("ann", roles=["admin"])).secret
    async with world.client_with(annexe_key) as annexe:
        stored = await annexe.store(FACTS[0])
        await world.reindex(SECOND, client=annexe)
        assert {(FIRST, 48): len(FACTS), (SECOND, 80): 1} == await world.vectors()
        answer = await annexe.find(FACTS[0], mode="semantic")
        assert [stored.memory.id] == [hit.memory.id for hit in answer.hits]
        assert SECOND == (await annexe.spaces.get()).embedding.model
        with pytest.raises(NotFound):
            async for _ in annexe.spaces.reindex("default"):
                pass
    assert {FIRST: 1, SECOND: 1} == dict(
        await world.connection.fetch(
            "select g.model, count(*) from spaces s join embedding_models g on g.number = s.embedding_model group by 1"
        )
    )


async def test_a_model_that_the_server_lacks_is_refused_with_those_it_has(world: World) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await world.reindex("third-words")
    assert "MODEL_NOT_LOADED" == caught.value.reason
    for known in (FIRST, SECOND, "all-MiniLM-L6-v2-int8 (384 dimensions)", "LOREBANK_NEXT_EMBEDDING_"):
        assert known in caught.value.message


async def test_it_needs_an_admin_of_the_whole_space(world: World) -> None:
    made = await world.client.keys.create("ann", roles=["admin"])
    async with world.client_with(made.secret) as admin:
        for role, project in (("reviewer", ""), ("admin", "billing")):
            secret = (await admin.keys.create("bob", roles=[role], project=project)).secret
            async with world.client_with(secret) as other:
                with pytest.raises(PermissionDenied):
                    await world.reindex(client=other)


async def test_a_second_call_is_refused_while_the_first_goes_on(world: World) -> None:
    await world.store(*FACTS)
    world.second.gate.clear()
    running = asyncio.create_task(world.reindex(SECOND))
    await world.until("embedding")
    for model in (SECOND, ""):
        with pytest.raises(Aborted, match="under way") as caught:
            async for _ in world.client.spaces.reindex(model=model):
                pass
        assert "REINDEXING_UNDER_WAY" == caught.value.reason
    world.second.gate.set()
    check_progress(await running)
    check_progress(await world.reindex())


async def test_the_next_call_finds_it_free_also_after_a_failure(world: World) -> None:
    await world.store(*FACTS)
    for _ in range(5):
        await world.reindex()
        world.second.refused = " "
        with pytest.raises(Unavailable):
            await world.reindex(SECOND)
