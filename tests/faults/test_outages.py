"""What an outage must not do to those who do not need what is away, and how what it left undone is made up for."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import asyncpg
import grpc
import pytest
from faulty_world import PATIENCE_S, World, eventually
from tcp_proxy import Fault

from lorebank import LorebankError
from lorebank.v1 import find_pb2, read_pb2, store_pb2, write_pb2
from lorebank.v1.memory_pb2 import Memory
from lorebank_server.postgres import pool
from lorebank_server.postgres.embedding_backfill import EmbeddingBackfill

LONG_S = 20.0
HYBRID, SEMANTIC, LEXICAL = (
    find_pb2.FindRequest.MODE_HYBRID,
    find_pb2.FindRequest.MODE_SEMANTIC,
    find_pb2.FindRequest.MODE_LEXICAL,
)


@pytest.fixture
async def world(open_world):
    """A server of the test's own."""
    async with open_world() as opened:
        yield opened


@asynccontextmanager
async def connected(dsn: str):
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def store(world: World, content: str, *, request_id: str = "", deadline_s: float = PATIENCE_S) -> Memory:
    request = store_pb2.StoreRequest(memory=Memory(content=content), request_id=request_id or str(uuid4()))
    return (await world.call("Store", request, deadline_s=deadline_s)).memory


def find(world: World, query: str, mode: int = HYBRID, *, deadline_s: float = PATIENCE_S):
    return world.call("Find", find_pb2.FindRequest(query=query, mode=mode), deadline_s=deadline_s)


async def similarity(world: World, memory_id: str, query: str) -> float:
    """Cosine of a memory to a query, or 0 while it has no vector."""
    answer = await find(world, query, SEMANTIC)
    return max((hit.parts.similarity for hit in answer.hits if hit.memory.id == memory_id), default=0.0)


async def waiting(world: World) -> int:
    """How many memories wait to be embedded."""
    async with connected(world.dsn) as connection:
        return int(await connection.fetchval("select count(*) from unembedded"))


async def copies(world: World, content: str) -> int:
    async with connected(world.dsn) as connection:
        return int(await connection.fetchval("select count(*) from memories where body ->> 'content' = $1", content))


async def test_a_silent_embedder_takes_no_connection_from_others(open_world):
    async with open_world(database_pool_size=2) as world:
        kept = await store(world, "The cellar holds forty barrels.")
        await world.proxies["embedder"].suffer(Fault.BLACK_HOLE)
        patient = [
            asyncio.create_task(find(world, f"barrels {number}", deadline_s=LONG_S))
            for number in range(world.breaker_opens_after - 1)
        ]
        storing = asyncio.create_task(store(world, "The attic holds one barrel.", deadline_s=LONG_S))
        await eventually(lambda: _asked(world, len(patient)))
        answers = await asyncio.gather(
            find(world, "barrels", LEXICAL, deadline_s=5.0),
            world.call("GetMemory", read_pb2.GetMemoryRequest(id=kept.id), deadline_s=5.0),
            world.call("ListMemories", read_pb2.ListMemoriesRequest(), deadline_s=5.0),
        )
        under_way = [task for task in (*patient, storing) if not task.done()]
        assert len(patient) + 1 == len(under_way)
        assert [kept.id] == [hit.memory.id for hit in answers[0].hits]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _asked(world: World, times: int) -> bool:
    return world.proxies["embedder"].accepted > times


async def test_an_open_circuit_asks_nothing_and_remembered_queries_still_find_by_meaning(world: World):
    kept = await store(world, "The cellar holds forty barrels.")
    remembered = "how many casks are below?"
    assert [kept.id] == [hit.memory.id for hit in (await find(world, remembered)).hits]
    await world.proxies["embedder"].suffer(Fault.RESET)
    for number in range(world.breaker_opens_after):
        assert (await find(world, f"barrels {number}")).degraded
    assert "open" == world.breaker.state
    asked = world.proxies["embedder"].accepted
    assert (await find(world, "barrels anew")).degraded
    answer = await find(world, remembered, SEMANTIC)
    assert ([], [kept.id]) == (list(answer.degraded), [hit.memory.id for hit in answer.hits])
    assert "open" != world.breaker.state or asked == world.proxies["embedder"].accepted


async def test_an_answer_of_the_embedder_that_breaks_off_is_asked_for_again(world: World):
    kept = await store(world, "The cellar holds forty barrels.")
    world.proxies["embedder"].cut_after(100)
    answer = await find(world, "how many casks are below?")
    assert ([], [kept.id]) == (list(answer.degraded), [hit.memory.id for hit in answer.hits])


async def test_a_text_that_the_embedder_refuses_keeps_nobody_waiting(world: World):
    world.endpoint.refused = {"unspeakable", "unbearable"}
    refused = [await store(world, f"The {word} riddle of the cellar.") for word in sorted(world.endpoint.refused)]
    await world.proxies["embedder"].suffer(Fault.REFUSED)
    delayed = [await store(world, f"Barrel {number} of the cellar holds cider.") for number in range(3)]
    await world.proxies["embedder"].heal()
    for memory in delayed:
        assert 0.5 < await eventually(partial(similarity, world, memory.id, memory.content))
    assert "closed" == world.breaker.state
    assert len(refused) == await waiting(world)
    world.endpoint.refused.clear()
    async with connected(world.dsn) as connection:
        # Their time has come.
        await connection.execute("update unembedded set not_before = now()")
    for memory in refused:
        assert 0.5 < await eventually(partial(similarity, world, memory.id, memory.content))
    assert 0 == await waiting(world)


async def test_two_servers_catch_up_with_the_same_backlog(open_world, database_factory):
    database = await database_factory()
    async with open_world(database=database) as one, open_world(database=database, model=one.model) as other:
        for world in (one, other):
            await world.proxies["embedder"].suffer(Fault.REFUSED)
        requests = [
            store_pb2.StoreRequest(memory=Memory(content=f"Barrel {number} of the cellar holds cider."))
            for number in range(150)
        ]
        await one.call("BatchStore", store_pb2.BatchStoreRequest(requests=requests))
        assert len(requests) == await waiting(one)
        for world in (one, other):
            await world.proxies["embedder"].heal()
        await eventually(partial(_is_empty, one))
        async with connected(database) as connection:
            assert len(requests) == await connection.fetchval("select count(*) from embeddings")
        # Nobody embedded what the other did.
        assert len(requests) == one.endpoint.texts + other.endpoint.texts


async def _is_empty(world: World) -> bool:
    return await waiting(world) == 0


async def test_words_that_change_while_they_are_embedded_are_embedded_again(world: World):
    await world.proxies["embedder"].suffer(Fault.REFUSED)
    stored = await store(world, "The zebra exporter listens on port 9431.")
    changed = "Maren prefers peppermint tea."

    class SlowEmbedder:
        """While the first page is with it, the memory is changed."""

        async def embed_documents(self, texts):
            request = write_pb2.UpdateMemoryRequest(memory=Memory(id=stored.id, content=changed))
            request.update_mask.paths.append("content")
            await world.call("UpdateMemory", request)
            return [await real(text) for text in texts]

    async def real(text):
        return (await world.endpoint.embedder.embed_documents([text]))[0]

    async with connected(world.dsn) as connection:
        await pool.register_vector(connection)
        (model,) = [row["embedding_model"] for row in await connection.fetch("select embedding_model from spaces")]
        backfill = EmbeddingBackfill(world.dsn, [(model, SlowEmbedder())])
        assert 0 == await backfill.catch_up(connection)
        assert 0 == await connection.fetchval("select count(*) from embeddings")
    assert 1 == await waiting(world)
    await world.proxies["embedder"].heal()
    assert 0.6 < await eventually(partial(similarity, world, stored.id, changed))
    assert 0 == await waiting(world)


async def test_connections_that_died_unnoticed_cost_one_caller_his_call(world: World):
    kept = await store(world, "The cellar holds forty barrels.")
    get = partial(world.call, "GetMemory", read_pb2.GetMemoryRequest(id=kept.id))
    await asyncio.gather(*(get() for _ in range(50)))
    assert 4 < world.running.services.storage._pool.get_idle_size()
    await world.proxies["postgres"].suffer(Fault.BLACK_HOLE)
    with pytest.raises(LorebankError) as caught:
        await get(deadline_s=10.0)
    assert "STORAGE_UNAVAILABLE" == caught.value.reason
    await world.proxies["postgres"].heal()
    await eventually(world.serves)
    answers = await asyncio.gather(*(get() for _ in range(8)))
    assert {kept.id} == {answer.memory.id for answer in answers}


@pytest.mark.parametrize("part", range(8))
async def test_a_store_whose_connection_breaks_anywhere_is_stored_once(shared_world: World, part: int):
    content = f"Barrel {part} holds perry."
    request_id = str(uuid4())
    stored, failures = [], []
    for step in range(12):
        shared_world.proxies["postgres"].cut_after(part * 25 + step * 200)
        try:
            stored.append((await store(shared_world, content, request_id=request_id)).id)
        except LorebankError as error:
            failures.append((error.code, error.reason))
    await shared_world.proxies["postgres"].heal()
    stored.append((await eventually(partial(store, shared_world, content, request_id=request_id))).id)
    assert {(grpc.StatusCode.UNAVAILABLE, "STORAGE_UNAVAILABLE")} == set(failures)
    assert 1 == len(set(stored))
    assert 1 == await copies(shared_world, content)


@pytest.fixture(scope="module")
async def shared_world(open_world):
    """A server for tests that leave it well."""
    async with open_world() as opened:
        yield opened


async def test_locks_of_a_writer_that_went_silent_are_let_go(open_world, monkeypatch):
    sooner = {"idle_in_transaction_session_timeout": "1s"}
    settings = {**pool.SERVER_SETTINGS, **sooner}
    assert set(sooner) < set(pool.SERVER_SETTINGS)
    monkeypatch.setattr(pool, "SERVER_SETTINGS", settings)
    request_id = str(uuid4())
    content = "The cellar holds forty barrels."
    # With one connection, whatever would keep it busy keeps everybody waiting.
    async with open_world(database_pool_size=1) as world, connected(world.dsn) as other:
        lock = f"request:1:local:{request_id}"
        await other.execute("select pg_advisory_lock(hashtextextended($1, 0))", lock)
        writing = asyncio.create_task(store(world, content, request_id=request_id, deadline_s=LONG_S))
        await eventually(lambda: other.fetchval("select exists (select from pg_locks where not granted)"))
        await world.proxies["postgres"].suffer(Fault.BLACK_HOLE)
        # The silent server's transaction gets its lock now, and would keep it.
        await other.execute("select pg_advisory_unlock(hashtextextended($1, 0))", lock)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await world.proxies["postgres"].heal()
        stored = await eventually(partial(store, world, content, request_id=request_id))
        assert stored.id == (await store(world, content, request_id=request_id)).id
        assert 1 == await copies(world, content)
