"""What a write acknowledged is found by meaning at once, whatever the store has taken in."""

import pytest
from outbox_world import World, eventually

from lorebank import AsyncClient
from lorebank_server.domain.selector import Selector
from lorebank_server.ports.storage import RecallPlan
from lorebank_server.vectors import overlaid_index

_FACT = "The staging database is wiped every Monday."
_QUESTION = "when is the test environment reset?"  # shares no word with the fact


async def _found(world: World, **options) -> tuple[list[str], list[str]]:
    answer = await world.client.find(_QUESTION, mode="semantic", **options)
    return [hit.memory.id for hit in answer.hits], list(answer.degraded)


async def test_a_write_is_found_while_the_store_lags(outside: World) -> None:
    outside.store.gate.clear()
    memory = (await outside.client.store(_FACT)).memory.id

    assert ([memory], []) == await _found(outside)
    assert not outside.store.disk.versions
    outside.store.gate.set()
    await outside.settled()
    assert ([memory], []) == await _found(outside)


async def test_a_write_is_found_while_the_store_is_down_and_the_answer_says_so(outside: World) -> None:
    await outside.client.store("Logs are kept for ninety days.")
    await outside.settled()
    outside.store.down = True
    memory = (await outside.client.store(_FACT)).memory.id

    found, degraded = await _found(outside)

    assert [memory] == found
    assert any("vector index" in reason for reason in degraded)


async def test_a_change_and_a_deletion_count_at_once(outside: World) -> None:
    first = (await outside.client.store(_FACT)).memory.id
    second = (await outside.client.store("Every Tuesday the staging database is restored.")).memory.id
    await outside.settled()
    outside.store.gate.clear()
    await outside.client.update(first, tags=["staging"])
    await outside.client.delete(second)

    assert ([first], []) == await _found(outside, tags_any=["staging"])
    assert ([first], []) == await _found(outside)
    outside.store.gate.set()
    await outside.settled()


@pytest.mark.parametrize("moment", ["before_search", "after_search"])
async def test_a_row_drained_while_the_store_is_searched_is_not_lost(outside: World, moment: str) -> None:
    outside.store.gate.clear()
    memory = (await outside.client.store(_FACT)).memory.id

    async def drain() -> None:
        outside.store.gate.set()
        await outside.settled()

    setattr(outside.store, moment, drain)
    found = await _found(outside)

    assert outside.store.disk.versions
    assert ([memory], []) == found


async def test_stale_points_take_no_place_from_others(outside: World, embedder) -> None:
    memories = [(await outside.client.store(f"{_FACT} Note {number}.")).memory.id for number in range(12)]
    other = (await outside.client.store("Lunch is at noon.")).memory.id
    await outside.settled()
    outside.store.gate.clear()
    for memory in memories:
        await outside.client.delete(memory)
    generation, bucket = await outside.connection.fetchrow("select model, bucket_id from embeddings limit 1")
    plan = RecallPlan(1, generation, (bucket,), (), (), 1, 0)
    services = outside.running.services
    vector = await embedder.embed_query(_FACT)

    found = await services.vectors.search(plan, vector, Selector(), now=services.clock(), limit=2)

    assert [await outside.uid(other)] == list(found.similarities)
    outside.store.gate.set()
    await outside.settled()


async def test_more_than_can_be_compared_is_said(outside: World, monkeypatch) -> None:
    monkeypatch.setattr(overlaid_index, "MOST_PENDING", 3)
    outside.store.down = True
    for number in range(3):
        await outside.client.store(f"Fact {number}.")
    assert outside.store.down
    outside.store.down = False
    outside.store.gate.clear()
    memory = (await outside.client.store(_FACT)).memory.id

    async def behind() -> bool:
        return (await _found(outside))[1] == [overlaid_index.BEHIND]

    await eventually(behind)
    assert memory in (await _found(outside))[0]
    outside.store.gate.set()


@pytest.mark.parametrize("owner", ["ada", "bob"])
async def test_what_waits_is_seen_by_those_alone_who_may(outside: World, owner: str) -> None:
    admin = (await outside.client.keys.create("carol", roles=["admin"])).secret
    async with AsyncClient(outside.address, api_key=admin) as carol:
        secrets = {name: (await carol.keys.create(name, roles=["writer"])).secret for name in ("ada", "bob")}
    outside.store.gate.clear()
    async with (
        AsyncClient(outside.address, api_key=secrets["ada"]) as ada,
        AsyncClient(outside.address, api_key=secrets[owner]) as reader,
    ):
        memory = (await ada.store(_FACT)).memory.id
        hits = (await reader.find(_QUESTION, mode="semantic")).hits
        assert ([memory] if owner == "ada" else []) == [hit.memory.id for hit in hits]
    outside.store.gate.set()
