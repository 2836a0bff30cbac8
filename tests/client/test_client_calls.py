from uuid import UUID

import grpc
import pytest

from lorebank import Aborted, AsyncClient, DeadlineExceeded, Memory, Unavailable


async def test_what_is_unavailable_is_tried_again_with_the_same_request_id(script, failing):
    script.failures = [failing(grpc.StatusCode.UNAVAILABLE)] * 2
    async with AsyncClient(script.address) as client:
        answer = await client.store("A fact.")
    request_ids = {request.request_id for request in script.requests}
    assert ("A fact.", 3, 1) == (answer.memory.content, len(script.requests), len(request_ids))
    assert 4 == UUID(request_ids.pop()).version


async def test_after_five_attempts_it_is_unavailable(script, failing):
    script.failures = [failing(grpc.StatusCode.UNAVAILABLE)] * 9
    async with AsyncClient(script.address) as client:
        with pytest.raises(Unavailable):
            await client.store("A fact.")
    assert 5 == len(script.requests)


async def test_other_failures_are_not_tried_again(script, failing):
    script.failures = [failing(grpc.StatusCode.ABORTED)]
    async with AsyncClient(script.address) as client:
        with pytest.raises(Aborted):
            await client.store("A fact.")
    assert 1 == len(script.requests)


async def test_a_call_that_would_make_another_key_is_not_tried_again(script, failing):
    script.failures = [failing(grpc.StatusCode.UNAVAILABLE)]
    async with AsyncClient(script.address) as client:
        with pytest.raises(Unavailable):
            await client.keys.create("maren", roles=["writer"])
    assert 1 == len(script.requests)


async def test_a_server_that_is_not_there_is_unavailable():
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(Unavailable) as caught:
            await client.store("A fact.")
    assert "" == caught.value.reason


async def test_a_call_ends_at_its_deadline(script):
    script.silent = True
    async with AsyncClient(script.address, timeout_s=0.1) as client:
        with pytest.raises(DeadlineExceeded):
            await client.store("A fact.")


async def test_key_and_space_go_with_every_call(script):
    async with AsyncClient(script.address, api_key=" secret\n", space="acme") as client:
        await client.store("A fact.")
    assert ("Bearer secret", "acme") == (script.metadata[0]["authorization"], script.requests[0].space)


@pytest.mark.parametrize("api_key", ["sch\u00f6n", "two\nlines"])
def test_what_cannot_be_a_key_is_refused_without_showing_it(api_key):
    with pytest.raises(ValueError, match="API key") as caught:
        AsyncClient(api_key=api_key)
    assert api_key not in str(caught.value)


async def test_without_a_key_none_is_sent(script):
    async with AsyncClient(script.address) as client:
        await client.store("A fact.")
    assert "authorization" not in script.metadata[0]


async def test_the_environment_fills_in_what_is_not_given(script, monkeypatch):
    monkeypatch.setenv("LOREBANK_SERVER", script.address)
    monkeypatch.setenv("LOREBANK_API_KEY", "secret")
    monkeypatch.setenv("LOREBANK_SPACE", "acme")
    async with AsyncClient.from_environment(space="other") as client:
        await client.store("A fact.")
    assert ("Bearer secret", "other") == (script.metadata[0]["authorization"], script.requests[0].space)


async def test_a_closed_client_says_so(script):
    client = AsyncClient(script.address)
    await client.store("A fact.")
    await client.close()
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.store("A fact.")


async def test_many_are_sent_in_batches_and_answered_in_order(script):
    memories = (Memory(content=f"Fact {number}.") for number in range(5))
    steps = []
    async with AsyncClient(script.address) as client:
        answers = client.store_many(memories, on_duplicate="keep-both", batch_size=2, progress=steps.append)
        contents = [item.response.memory.content async for item in answers]
    assert [f"Fact {number}." for number in range(5)] == contents
    assert ([2, 4, 5], [2, 2, 1]) == (steps, [len(request.requests) for request in script.requests])
    assert {1} == {each.on_duplicate for request in script.requests for each in request.requests}


async def test_a_batch_that_is_tried_again_keeps_its_request_ids(script, failing):
    script.failures = [failing(grpc.StatusCode.UNAVAILABLE)]
    async with AsyncClient(script.address) as client:
        answers = [item async for item in client.store_many([Memory(content="A fact.")])]
    first, second = ([each.request_id for each in request.requests] for request in script.requests)
    assert (1, first) == (len(answers), second)
