from hypothesis import given
from hypothesis import strategies as st

from lorebank import Memory, StoreRequest
from lorebank._batches import MAX_BYTES, batches


async def collect(things, **options):
    return [batch async for batch in batches(things, **{"on_duplicate": 0, "max_items": 500} | options)]


async def test_nothing_makes_no_batch():
    assert [] == await collect([])


async def test_a_stream_is_taken_as_well():
    async def stream():
        yield Memory(content="A fact.")

    assert [1] == [len(batch) for batch in await collect(stream())]


async def test_a_batch_stays_below_the_limit_of_bytes():
    memories = [Memory(content="x" * (MAX_BYTES // 3))] * 4
    assert [2, 2] == [len(batch) for batch in await collect(memories)]


async def test_what_is_too_large_stands_alone():
    memories = [Memory(content="small"), Memory(content="x" * MAX_BYTES), Memory(content="small")]
    assert [1, 1, 1] == [len(batch) for batch in await collect(memories)]


async def test_a_request_keeps_what_it_says_itself():
    given_request = StoreRequest(memory=Memory(content="A fact."), request_id="mine", on_duplicate=3)
    ((request,),) = await collect([given_request], on_duplicate=1)
    assert ("mine", 3) == (request.request_id, request.on_duplicate)


async def test_the_callers_request_is_not_touched():
    mine = StoreRequest(memory=Memory(content="A fact."))
    await collect([mine], on_duplicate=1)
    assert StoreRequest(memory=Memory(content="A fact.")) == mine


@given(sizes=st.lists(st.integers(0, MAX_BYTES // 2), max_size=12), max_items=st.integers(1, 5))
async def test_order_is_kept_and_both_limits_hold(sizes, max_items):
    memories = [Memory(title=str(number), content="x" * size) for number, size in enumerate(sizes)]
    cut = await collect(memories, max_items=max_items)
    assert memories == [request.memory for batch in cut for request in batch]
    assert all(len(batch) <= max_items for batch in cut)
    assert all(sum(request.ByteSize() for request in batch) <= MAX_BYTES for batch in cut)
