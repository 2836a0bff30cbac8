"""BatchStore: item by item, in order, each as Store would."""

from uuid import uuid4

import grpc
from spaces_apart import store_request

from lorebank.v1 import memory_pb2, on_duplicate_pb2, store_pb2

CREATED, UNCHANGED = store_pb2.StoreResponse.RESULT_CREATED, store_pb2.StoreResponse.RESULT_UNCHANGED
KEEP_BOTH = on_duplicate_pb2.ON_DUPLICATE_KEEP_BOTH
ALREADY_EXISTS, INVALID, NOT_FOUND = (
    grpc.StatusCode.ALREADY_EXISTS.value[0],
    grpc.StatusCode.INVALID_ARGUMENT.value[0],
    grpc.StatusCode.NOT_FOUND.value[0],
)


async def batch(me, *requests):
    return list((await me.call(store_pb2.BatchStoreRequest(requests=requests))).items)


def results(items):
    return [item.response.result if item.HasField("response") else item.failure.reason for item in items]


async def test_items_are_answered_in_order(me):
    contents = [f"Fact number {number} of many." for number in range(50)]
    items = await batch(me, *map(store_request, contents))
    assert contents == [item.response.memory.content for item in items]
    assert {CREATED} == set(results(items))
    assert [item.response.memory.id for item in items][::-1] == await me.listed()


async def test_items_fail_one_by_one(me):
    items = await batch(
        me,
        store_request("The first good fact."),
        store_request("x"),
        store_request("Nul \x00 here."),
        store_request("A fact of an unknown sort.", category="unheard-of"),
        store_request("A fact with a bad id.", request_id="nope"),
        store_request("A fact for elsewhere.", space="default"),
        store_request("A fact too clever.", propose=True),
        store_request("A fact about nobody.", links=[store_pb2.StoreRequest.Link(type="about", target="zzzzzzzz")]),
        store_request("A fact of NaN.", confidence=float("nan")),
        store_request("The last good fact."),
    )
    assert [
        CREATED,
        "INVALID_FIELD",
        "INVALID_FIELD",
        "UNKNOWN_CATEGORY",
        "INVALID_FIELD",
        "INVALID_FIELD",
        "FIELD_NOT_SUPPORTED",
        "MEMORY_NOT_FOUND",
        "INVALID_FIELD",
        CREATED,
    ] == results(items)
    assert [INVALID, NOT_FOUND] == [items[1].failure.code, items[7].failure.code]
    assert "memory.content has 1 characters" in items[1].failure.message
    assert ["The last good fact.", "The first good fact."] == [memory.content async for memory in me.client.list()]


async def test_a_repetition_within_a_batch_is_unchanged(me):
    items = await batch(
        me,
        store_request("One fact twice."),
        store_request("Another fact."),
        store_request("One fact twice.", tags=["late"]),
        store_request("One fact twice.", subject="else"),
        store_request("One fact twice.", on_duplicate=KEEP_BOTH),
    )
    assert [CREATED, CREATED, UNCHANGED, CREATED, CREATED] == results(items)
    assert items[0].response.memory == items[2].response.memory
    assert 4 == len(await me.listed())


async def test_what_is_there_already_is_unchanged(me):
    there = await me.store("One fact twice.")
    items = await batch(me, store_request("A new fact."), store_request("One fact twice."))
    assert [CREATED, UNCHANGED] == results(items)
    assert there.id == items[1].response.memory.id


async def test_one_request_id_twice_in_a_batch_is_done_once(me):
    request = store_request("One request twice.", request_id=str(uuid4()), on_duplicate=KEEP_BOTH)
    first, second = await batch(me, request, request)
    assert first == second
    assert CREATED == second.response.result
    assert [first.response.memory.id] == await me.listed()


async def test_one_request_id_for_two_bodies_in_a_batch_fails_the_second(me):
    request_id = str(uuid4())
    items = await batch(
        me,
        store_request("The first body.", request_id=request_id),
        store_request("The other body.", request_id=request_id),
    )
    assert [CREATED, "REQUEST_ID_REUSED"] == results(items)
    assert ALREADY_EXISTS == items[1].failure.code


async def test_a_batch_may_be_repeated(here, me):
    requests = [store_request(f"Fact number {n}.", request_id=str(uuid4()), on_duplicate=KEEP_BOTH) for n in range(5)]
    first = await batch(me, *requests)
    assert first == await batch(me, *requests)
    assert first[::-1] == await batch(me, *requests[::-1])
    assert 5 == await here.rows("memories")


async def test_a_key_wanted_twice_in_a_batch_goes_to_the_first(me):
    items = await batch(
        me,
        store_request("The first holder.", key="k"),
        store_request("The second holder.", key="k"),
        store_request("Keyless."),
    )
    assert [CREATED, "KEY_TAKEN", CREATED] == results(items)
    assert ALREADY_EXISTS == items[1].failure.code
    assert items[0].response.memory.id in items[1].failure.message
    assert items[0].response.memory.id == (await me.client.get(key="k")).id


async def test_a_key_that_is_taken_fails_its_item_alone(me):
    holder = await me.store("The holder.", key="k")
    items = await batch(me, store_request("Keyless."), store_request("Too late.", key="k"))
    assert [CREATED, "KEY_TAKEN"] == results(items)
    assert holder.id in items[1].failure.message


async def test_rehearsals_in_a_batch_write_nothing(me):
    items = await batch(
        me,
        store_request("Only a rehearsal.", validate_only=True),
        store_request("In earnest."),
        store_request("x", validate_only=True),
    )
    assert [CREATED, CREATED, "INVALID_FIELD"] == results(items)
    assert [items[1].response.memory.id] == await me.listed()


async def test_items_go_where_each_says_and_may_link_to_what_was_there(here, me):
    target = await me.store("Maren owns it.")
    items = await batch(
        me,
        store_request("A private fact."),
        store_request("A common fact.", scope=memory_pb2.SCOPE_TEAM, project="shop"),
        store_request("A fact for all.", scope=memory_pb2.SCOPE_GLOBAL),
        store_request("A linked fact.", links=[store_pb2.StoreRequest.Link(type="about", target=target.id)]),
    )
    assert [CREATED] * 4 == results(items)
    other = await here.caller("other")
    assert {item.response.memory.id for item in items[1:3]} == set(await other.listed())
    assert [(items[3].response.memory.id, target.id)] == [
        (edge.source, edge.target) for edge in (await me.client.graph(target.id)).edges
    ]


async def test_someone_who_may_not_write_everywhere_fails_those_items_alone(here):
    writer = await here.caller("writer", role="writer", project="shop")
    items = await batch(
        writer,
        store_request("For everybody.", scope=memory_pb2.SCOPE_GLOBAL),
        store_request("For another project.", project="blog"),
        store_request("For my own project.", scope=memory_pb2.SCOPE_PROJECT),
    )
    assert ["ADMIN_REQUIRED", "PROJECT_NOT_ALLOWED", CREATED] == results(items)
    assert "shop" == items[2].response.memory.project


async def test_a_batch_of_500_is_taken(me):
    items = await batch(me, *[store_request("x") for _ in range(499)], store_request("The five hundredth fact."))
    assert ["INVALID_FIELD"] * 499 + [CREATED] == results(items)
