"""A server that dies while a space moves to another model."""

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from bench.service import Service
from lorebank import AsyncClient, LorebankError, Memory
from lorebank.v1.maintenance_pb2 import ReindexResponse

MEMORIES = 160
FACT = "The treasurer approves invoices above 500 euros."


async def test_killed_while_it_embeds_it_goes_on_where_it_was(service: Service, another_model: Path):
    service.start(LOREBANK_NEXT_EMBEDDING_MODEL_DIR=str(another_model))
    await service.ready()
    async with AsyncClient(service.address) as client:
        stored = await client.store(FACT)
        notes = [Memory(content=f"Shelf {number} holds box {number * 7}.") for number in range(1, MEMORIES)]
        assert MEMORIES - 1 == len([item async for item in client.store_many(notes)])
        former = (await client.spaces.get()).embedding.model
        refused = await failure(client, "another")
        (name,) = {word for word in refused.message.split() if word.startswith("another-model-")}

        steps: list[ReindexResponse] = []
        await failure(client, name, steps, at_first_vectors=lambda: service.kill("worker"))
        assert 0 < steps[-1].done < steps[-1].total == MEMORIES
        await service.ready()
        assert former == (await client.spaces.get()).embedding.model

        first, *_ = again = await until_switched(client, name)
        assert steps[-1].done <= first.done < again[-1].total == MEMORIES
        assert name == (await client.spaces.get()).embedding.model
        answer = await client.find("who has to approve large bills?", mode="semantic")
        assert stored.memory.id == answer.hits[0].memory.id
        assert not answer.degraded


async def failure(
    client: AsyncClient,
    name: str,
    steps: list[ReindexResponse] | None = None,
    *,
    at_first_vectors: Callable[[], object] = lambda: None,
) -> LorebankError:
    """How a reindexing ends that does not get to its end."""
    steps = [] if steps is None else steps
    try:
        async for step in client.spaces.reindex(model=name):
            steps.append(step)
            if step.done:
                at_first_vectors()
    except LorebankError as error:
        return error
    raise AssertionError(f"it got to its end: {steps[-1]}")


async def until_switched(client: AsyncClient, name: str) -> list[ReindexResponse]:
    """The steps up to the one that says how many former vectors there are to remove."""
    steps = []
    async with aclosing(client.spaces.reindex(model=name)) as told:
        async for step in told:
            steps.append(step)
            if step.phase == "switching" and step.total:
                break
    return steps
