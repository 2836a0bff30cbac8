from datetime import UTC, datetime

import pytest

import lorebank
from lorebank import AsyncClient, Ballot, Memory, StoreRequest
from lorebank.v1.memory_pb2 import State
from lorebank.v1.store_pb2 import StoreResponse
from lorebank.v1.vote_pb2 import VoteRequest


@pytest.fixture
async def client(server):
    async with AsyncClient(server.address) as opened:
        yield opened


async def store(client, content, **fields):
    return (await client.store(content, **fields)).memory


async def test_what_was_stored_is_found(client):
    staging = await store(client, "The staging database is wiped every Monday.", tags=["staging"])
    await store(client, "Maren prefers tea to coffee.")
    answer = await client.find("when is staging wiped?", limit=1)
    assert [staging.id] == [hit.memory.id for hit in answer.hits]


async def test_find_narrows_and_leaves_out_what_differs(client):
    await store(client, "The shop is deployed with Argo.", scope="team", project="shop")
    blog = await store(client, "The blog is deployed by hand.", scope="team", project="blog")
    answer = await client.find("how is it deployed", project="blog", scopes=["team"], mode="lexical")
    assert [blog.id] == [hit.memory.id for hit in answer.hits]


async def test_find_by_likeness_leaves_out_the_memory_itself(client):
    first = await store(client, "The shop is deployed with Argo.")
    second = await store(client, "The shop is deployed with Argo and Helm.")
    answer = await client.find(similar_to=first.id, skip_usage=True)
    assert [second.id] == [hit.memory.id for hit in answer.hits]


async def test_the_same_words_again_are_unchanged(client):
    first = await client.store("The shop is deployed with Argo.")
    second = await client.store("The shop is deployed with Argo.")
    both = await client.store("The shop is deployed with Argo.", on_duplicate="keep-both")
    assert [StoreResponse.RESULT_CREATED, StoreResponse.RESULT_UNCHANGED, StoreResponse.RESULT_CREATED] == [
        first.result,
        second.result,
        both.result,
    ]
    assert first.memory.id == second.memory.id


async def test_the_same_request_again_writes_nothing(client):
    request_id = "4b1d8c1e-8a55-4c0e-9a3a-0d6b8ad2f2c1"
    options = {"on_duplicate": "keep-both", "request_id": request_id}
    first = await client.store("The shop is deployed with Argo.", **options)
    second = await client.store("The shop is deployed with Argo.", **options)
    assert first.memory.id == second.memory.id


async def test_a_rehearsal_writes_nothing(client):
    await client.store("The shop is deployed with Argo.", validate_only=True)
    assert [] == [memory async for memory in client.list()]


async def test_fields_come_back_as_they_were_given(client):
    march = datetime(2026, 3, 1, tzinfo=UTC)
    stored = await store(
        client,
        "The shop is deployed with Argo.",
        title="Deployment",
        subject="shop",
        tags=["Deploy"],
        kind="procedural",
        confidence=0.5,
        valid_from=march,
        attributes={"tool": "argo"},
    )
    memory = await client.get(stored.id)
    assert ("Deployment", "shop", ["deploy"], 0.5, march, "argo") == (
        memory.title,
        memory.subject,
        list(memory.tags),
        memory.confidence,
        memory.valid_from.ToDatetime(UTC),
        memory.attributes["tool"],
    )


async def test_a_memory_is_read_by_id_key_or_uid(client):
    stored = await store(client, "The shop is deployed with Argo.", key="shop/deploy")
    by_id, by_key, by_uid = (
        await client.get(stored.id),
        await client.get(key="shop/deploy"),
        await client.get(uid=stored.uid),
    )
    assert [stored.id] * 3 == [by_id.id, by_key.id, by_uid.id]


async def test_what_is_not_there_is_not_found(client):
    with pytest.raises(lorebank.NotFound) as caught:
        await client.get("zzzzzzzz")
    assert {"id": "zzzzzzzz"} == dict(caught.value.metadata)


async def test_many_are_read_at_once_and_what_is_missing_is_named(client):
    stored = await store(client, "The shop is deployed with Argo.")
    answer = await client.get_many([stored.id, "zzzzzzzz"])
    assert ([stored.id], ["zzzzzzzz"]) == ([memory.id for memory in answer.memories], list(answer.missing))


async def test_a_list_goes_on_over_its_pages(client):
    stored = [await store(client, f"Fact number {number}.") for number in range(5)]
    pager = client.list(page_size=2, order_by="create_time asc")
    assert [memory.id for memory in stored] == [memory.id async for memory in pager]
    assert [2, 2, 1] == [len(page.memories) async for page in pager.pages()]


async def test_an_empty_list_has_one_empty_page(client):
    assert [0] == [len(page.memories) async for page in client.list(project="none").pages()]


async def test_an_update_changes_and_clears_what_it_names(client):
    stored = await store(client, "The shop is deployed by Argo.", title="Deploy", tags=["deploy"], confidence=0.5)
    answer = await client.update(
        stored.id, content="The shop is deployed with Argo.", title=None, reason="a wrong word"
    )
    memory = answer.memory
    assert ("The shop is deployed with Argo.", "", ["deploy"], 2) == (
        memory.content,
        memory.title,
        list(memory.tags),
        memory.revision,
    )


async def test_an_update_takes_a_message_with_a_mask(client):
    memory = await client.get((await store(client, "The shop is deployed with Argo.")).id)
    memory.subject = "shop"
    memory.title = "not in the mask"
    answer = await client.update(memory, mask=["subject"])
    assert ("shop", "") == (answer.memory.subject, answer.memory.title)


async def test_an_update_of_what_has_changed_is_aborted(client):
    stored = await store(client, "The shop is deployed with Argo.")
    await client.update(stored.id, title="Deployment")
    with pytest.raises(lorebank.Aborted):
        await client.update(stored.id, title="Shipping", etag=stored.etag)


async def test_what_was_deleted_comes_back(client):
    stored = await store(client, "The shop is deployed with Argo.")
    deleted = await client.delete(stored.id)
    restored = await client.undelete(stored.id)
    assert (State.STATE_DELETED, State.STATE_ACTIVE) == (deleted.state, restored.state)


async def test_history_has_every_revision_with_its_reason(client):
    stored = await store(client, "The shop is deployed with Argo.")
    await client.update(stored.id, title="Deployment", reason="it had none")
    revisions = [revision async for revision in client.history(stored.id, page_size=1)]
    assert {(2, "it had none"), (1, "")} == {(revision.revision, revision.reason) for revision in revisions}


async def test_what_was_superseded_names_its_successor(client):
    old = await store(client, "The shop is deployed with Argo.")
    answer = await client.supersede(old.id, "The shop is deployed with Flux.", reason="Argo is gone")
    assert ([old.id], answer.memory.id) == (list(answer.memory.supersedes), answer.superseded[0].superseded_by)
    with pytest.raises(lorebank.FailedPrecondition) as caught:
        await client.supersede([old.id], "The shop is deployed by hand.")
    assert answer.memory.id == caught.value.metadata["superseded_by"]


async def test_votes_count_and_can_be_taken_back(client):
    stored = await store(client, "The shop is deployed with Argo.")
    up = await client.upvote(stored.id, run="build-1")
    cited = await client.cite(stored.id, run="build-1")
    gone = await client.retract(stored.id, run="build-1")
    down = await client.downvote(stored.id, reason="not any more")
    counts = [
        (memory.quality.upvotes, memory.quality.downvotes, memory.quality.citations)
        for memory in (up.memories[0], cited.memories[0], gone.memories[0], down.memories[0])
    ]
    assert [(1, 0, 0), (1, 0, 1), (0, 0, 0), (0, 1, 0)] == counts


async def test_ballots_of_several_kinds_go_in_one_call(client):
    first, second = [await store(client, f"Fact number {number}.") for number in range(2)]
    answer = await client.vote(
        [
            Ballot(id=first.id, signal=VoteRequest.SIGNAL_UPVOTE),
            Ballot(id=second.id, signal=VoteRequest.SIGNAL_DOWNVOTE),
        ]
    )
    assert [(1, 0), (0, 1)] == [(m.quality.upvotes, m.quality.downvotes) for m in answer.memories]


async def test_a_graph_holds_what_is_linked(client):
    deploy = await store(client, "The shop is deployed with Argo.")
    rollback = await store(client, "Argo rolls back on its own.", links=[("explains", deploy.id)])
    answer = await client.graph(deploy.id)
    assert {deploy.id, rollback.id} == {node.ref for node in answer.nodes}
    assert [(rollback.id, "explains", deploy.id)] == [(e.source, e.type, e.target) for e in answer.edges]


async def test_many_are_stored_and_fail_one_by_one(client):
    things = [
        Memory(content="Fact number one."),
        Memory(content="no"),
        StoreRequest(memory=Memory(content="Fact two.")),
    ]
    items = [item async for item in client.store_many(things)]
    assert ["", "InvalidArgument", ""] == [
        type(lorebank.error_of(item.failure)).__name__ if item.HasField("failure") else "" for item in items
    ]
    assert 2 == len([memory async for memory in client.list()])


async def test_a_wrong_key_is_unauthenticated(server):
    async with AsyncClient(server.address, api_key="lb_wrong") as client:
        with pytest.raises(lorebank.Unauthenticated):
            await client.find("anything at all")
