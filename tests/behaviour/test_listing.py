"""ListMemories: in every order, page by page, while others write."""

import pytest

from lorebank.v1 import memory_pb2, read_pb2

ORDERS = ("create_time", "update_time", "use_count", "strength")


def value_of(memory, order):
    if order == "use_count":
        return memory.usage.use_count
    if order == "strength":
        return round(memory.quality.strength, 12)
    moment = getattr(memory, order)
    return (moment.seconds, moment.nanos)


async def fill(me, time, shared):
    """Twelve memories with ties in every order."""
    stored = []
    for number in range(12):
        if number % 3 == 0:
            time.advance(days=1)
        stored.append(await me.store(f"The canary number {number} sings."))
    time.advance(hours=1)
    await me.client.update(stored[2].id, title="Title")
    await me.client.update(stored[5].id, title="Title")
    await me.client.upvote(stored[7].id, stored[1].id)
    await me.client.downvote(stored[4].id)
    for repetition in range(2):
        await me.client.find("canary", limit=100, ids=[memory.id for memory in stored[repetition * 3 : 6]])
    await shared.running.services.usage.flush()
    return stored


async def pages(me, size, **fields):
    token, items, totals = "", [], []
    while True:
        page = await me.call(read_pb2.ListMemoriesRequest(page_size=size, page_token=token, **fields))
        assert len(page.memories) == size or not page.next_page_token
        items += page.memories
        totals.append(page.total_size)
        token = page.next_page_token
        if not token:
            return items, totals


@pytest.mark.parametrize("direction", ["", " asc", " desc"])
@pytest.mark.parametrize("order", ORDERS)
async def test_pages_follow_the_order_with_ties_by_age(me, time, shared, order, direction):
    await fill(me, time, shared)
    items, totals = await pages(me, 5, order_by=order + direction)
    expected = sorted(items, key=lambda m: (value_of(m, order), m.uid), reverse=direction != " asc")
    assert [memory.id for memory in expected] == [memory.id for memory in items]
    assert (12, {12}) == (len({memory.id for memory in items}), set(totals))
    assert 1 < len({value_of(memory, order) for memory in items}) < 12


@pytest.mark.parametrize("size", [1, 3, 4, 11, 12, 13])
async def test_pages_of_every_size_hold_the_same(me, time, shared, size):
    stored = await fill(me, time, shared)
    items, _ = await pages(me, size)
    assert [memory.id for memory in reversed(stored)] == [memory.id for memory in items]


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("order", ORDERS)
async def test_what_stays_as_it_is_comes_exactly_once_while_others_come_and_go(me, time, shared, order, direction):
    stored = await fill(me, time, shared)
    token, seen = "", []
    for step in range(20):
        page = await me.call(
            read_pb2.ListMemoriesRequest(page_size=3, page_token=token, order_by=f"{order} {direction}")
        )
        seen += [memory.id for memory in page.memories]
        token = page.next_page_token
        if not token:
            break
        time.advance(hours=7 * (step % 2))
        await me.store(f"A newcomer number {step}.")
        if step == 1:
            await me.client.delete(stored[0].id)
    kept = [memory.id for memory in stored[1:]]
    assert sorted(kept) == sorted(memory_id for memory_id in seen if memory_id in kept)


async def test_strength_keeps_its_order_from_page_to_page_while_time_passes(me, time):
    stored = [
        await me.store(f"Fact number {n} of a kind.", category=("pattern", "swarm/pattern")[n % 2]) for n in range(6)
    ]
    time.advance(days=20)
    first = await me.call(read_pb2.ListMemoriesRequest(page_size=3, order_by="strength"))
    time.advance(days=2000)
    rest = await me.call(
        read_pb2.ListMemoriesRequest(page_size=3, order_by="strength", page_token=first.next_page_token)
    )
    assert sorted(memory.id for memory in stored) == sorted(m.id for m in (*first.memories, *rest.memories))


async def test_the_default_is_50_newest_first(me):
    facts = [memory_pb2.Memory(content=f"Fact number {n}.") for n in range(51)]
    stored = [item async for item in me.client.store_many(facts)]
    page = await me.call(read_pb2.ListMemoriesRequest())
    assert [item.response.memory.id for item in stored][:0:-1] == [memory.id for memory in page.memories]
    assert (51, True) == (page.total_size, bool(page.next_page_token))


async def test_nothing_to_list_is_an_empty_page(me):
    page = await me.call(read_pb2.ListMemoriesRequest())
    assert ([], "", 0) == (list(page.memories), page.next_page_token, page.total_size)


async def test_strength_is_ordered_long_after_the_last_half_life(open_space, time):
    half_life = {"seconds": 1}
    me = await (await open_space(half_life=half_life, stale_threshold=0.1)).caller("tester")
    stored = [await me.store(f"Fact number {n}.") for n in range(3)]
    await me.client.upvote(stored[1].id)
    time.advance(days=30)
    listed = [memory async for memory in me.client.list(order_by="strength")]
    assert [stored[n].id for n in (1, 2, 0)] == [memory.id for memory in listed]
    assert [pytest.approx(memory.quality.reputation / 4) for memory in listed] == [
        memory.quality.strength for memory in listed
    ]


async def test_an_entry_tells_all_of_its_memory(me):
    stored = await me.store("The canary sings.", scope="team", tags=["bird"])
    page = await me.call(read_pb2.ListMemoriesRequest())
    assert [stored] == list(page.memories)
    assert memory_pb2.STATE_ACTIVE == page.memories[0].state
