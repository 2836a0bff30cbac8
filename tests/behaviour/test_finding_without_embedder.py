"""While the embedding model is away: storing warns, finding goes by words, and nothing is lost."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import grpc
import pytest
from spaces_apart import Caller

from lorebank import AsyncClient, LorebankError
from lorebank_server.config import Settings
from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.serving import running_server

NOW = datetime(2026, 1, 15, tzinfo=UTC)
NOT_EMBEDDED = (
    "The embedding model did not answer: until it does and this memory is embedded, which happens by itself, the "
    "memory is found by its words only."
)
FACT = "The staging database is wiped every Monday."


class MoodyEmbedder:
    """The real model, as long as it is ``up``; ``reads`` says whether it takes documents then."""

    def __init__(self, real):
        self.real, self.up, self.reads = real, True, True
        self.model, self.dimensions = real.model, real.dimensions

    async def embed_query(self, text):
        self._check(awake=self.up)
        return await self.real.embed_query(text)

    async def embed_documents(self, texts):
        self._check(awake=self.up and self.reads)
        return await self.real.embed_documents(texts)

    def _check(self, *, awake):
        if not awake:
            raise EmbedderUnavailableError("It sleeps.", reason="EMBEDDER_UNAVAILABLE")

    async def aclose(self):
        self.up = False


async def eventually(look):
    """What ``look`` finds, once it finds anything."""
    async with asyncio.timeout(20.0):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
async def moody(database_factory, embedder):
    moody = MoodyEmbedder(embedder)
    settings = Settings(listen="127.0.0.1:0", database_pool_size=4, drain_grace_s=2.0)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            running_server(settings, await database_factory(), clock=lambda: NOW, embedder=moody)
        )
        address = f"127.0.0.1:{running.port}"
        client = await stack.enter_async_context(AsyncClient(address))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        yield moody, Caller(client, channel, "", "local")


@pytest.fixture
async def down(moody):
    embedder, me = moody
    embedder.up = False
    yield me
    embedder.up = embedder.reads = True
    for memory_id in await me.listed():
        await me.client.delete(memory_id)


@pytest.fixture
def awake(moody):
    def wake(up=True, reads=True):
        moody[0].up, moody[0].reads = up, reads

    return wake


async def test_storing_warns_and_keeps_the_memory(down):
    answer = await down.client.store(FACT)
    assert [NOT_EMBEDDED] == list(answer.warnings)
    assert FACT == (await down.client.get(answer.memory.id)).content


async def test_a_repeated_request_repeats_the_warning(down, awake):
    request_id = "0190a5c4-7d10-7b3e-9d43-6f1f0c2b8a11"
    first = await down.client.store(FACT, request_id=request_id)
    awake()
    assert first == await down.client.store(FACT, request_id=request_id)


async def test_finding_goes_by_words_and_says_so(down):
    stored = await down.store(FACT)
    for mode in ("hybrid", "semantic"):
        answer = await down.find("staging", mode=mode)
        assert ["embedder: unavailable, found by words only, min_similarity not applied"] == list(answer.degraded)
        assert [stored.id] == [hit.memory.id for hit in answer.hits]
        assert 0.0 == answer.hits[0].parts.similarity
    lexical = await down.find("staging", mode="lexical")
    assert ([stored.id], []) == ([hit.memory.id for hit in lexical.hits], list(lexical.degraded))


async def test_a_least_similarity_withholds_nothing_that_could_not_be_compared(down):
    stored = await down.store(FACT)
    answer = await down.find("staging", min_similarity=0.9)
    assert ([stored.id], 0, 1) == ([hit.memory.id for hit in answer.hits], answer.below_threshold, len(answer.degraded))


async def test_what_was_stored_meanwhile_is_found_by_words_among_the_others(down, awake):
    awake()
    embedded = await down.store("The staging database belongs to Maren.")
    awake(reads=False)
    unembedded = await down.store(FACT)
    answer = await down.find("staging database")
    assert [] == list(answer.degraded)
    assert {unembedded.id, embedded.id} == {hit.memory.id for hit in answer.hits}
    assert [embedded.id] == await down.found("staging database", mode="semantic")


async def test_what_was_stored_meanwhile_is_found_by_meaning_later(down, awake):
    stored = await down.store(FACT)
    awake()
    assert [stored.id] == await eventually(lambda: down.found("when is the data thrown away?", mode="semantic"))


async def test_likes_of_a_memory_without_a_vector_go_by_words_or_are_refused(down, awake):
    awake()
    other = await down.store("The staging database belongs to Maren.")
    awake(reads=False)
    unembedded = await down.store(FACT)
    answer = await down.find(similar_to=unembedded.id)
    assert ([other.id], 1) == ([hit.memory.id for hit in answer.hits], len(answer.degraded))
    with pytest.raises(LorebankError) as caught:
        await down.find(similar_to=unembedded.id, mode="semantic")
    assert (grpc.StatusCode.FAILED_PRECONDITION, "NOT_EMBEDDED") == (caught.value.code, caught.value.reason)
    assert [other.id] == await down.found(similar_to=unembedded.id, mode="lexical")


async def test_likes_of_an_embedded_memory_need_no_embedder(down, awake):
    awake()
    first, second = await down.store(FACT), await down.store("The staging database belongs to Maren.")
    awake(up=False)
    answer = await down.find(similar_to=first.id, mode="semantic")
    assert ([second.id], []) == ([hit.memory.id for hit in answer.hits], list(answer.degraded))


async def test_a_corrected_memory_is_not_found_by_the_meaning_it_had(down, awake):
    awake()
    stored = await down.store("The zebra exporter listens on port 9431.")
    awake(reads=False)
    await down.client.update(stored.id, content="Maren prefers peppermint tea.")
    assert [] == await down.found("zebra exporter port", mode="semantic")
    assert [stored.id] == await down.found("peppermint", mode="lexical")
    awake()
    assert [stored.id] == await eventually(lambda: down.found("which drink does she like", mode="semantic"))
    answer = await down.find("which drink does she like", mode="semantic")
    assert 0.2 < answer.hits[0].parts.similarity


async def test_superseding_works_without_the_embedder_too(down):
    old = await down.store(FACT)
    answer = await down.client.supersede(old.id, "The staging database is never wiped.")
    assert [answer.memory.id] == await down.found("staging")
