"""The HTTP embedder against a real endpoint on the loopback."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.embedding import EmbeddingSpec, create_embedder
from lorebank_server.embedding.http import OpenAICompatibleEmbedder

Answer = tuple[int, bytes] | None
KEY = "sk-hidden"
TEXT = "a private memory"


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 1.0, 0.0]


def embeddings(request: dict, *, reverse: bool = False, length: int = 3) -> bytes:
    data = [
        {"object": "embedding", "index": index, "embedding": vector_of(text)[:length]}
        for index, text in enumerate(request["input"])
    ]
    return json.dumps({"object": "list", "data": data[::-1] if reverse else data}).encode()


class Endpoint:
    """Answers by a function of the parsed body; None hangs up without an answer."""

    def __init__(self) -> None:
        self.answer: Callable[[dict], Answer] = lambda request: (200, embeddings(request))
        self.requests: list[dict] = []
        self.heads: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length")
                )
                request = json.loads(await reader.readexactly(length))
                self.heads.append(head)
                self.requests.append(request)
                await self.gate.wait()
                answer = self.answer(request)
                if answer is None:
                    return
                status, body = answer
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()


@pytest.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    endpoint = Endpoint()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield endpoint
        endpoint.gate.set()


@contextlib.asynccontextmanager
async def connected(url: str, **settings) -> AsyncIterator[OpenAICompatibleEmbedder]:
    settings = {"model": "tiny", "api_key": KEY, "dimensions": 3, "retry_delay_s": 0.0} | settings
    embedder = await OpenAICompatibleEmbedder.create(url=url, **settings)
    try:
        yield embedder
    finally:
        await embedder.aclose()


async def failure_of(url: str, **settings) -> EmbedderUnavailableError:
    async with connected(url, **settings) as embedder:
        with pytest.raises(EmbedderUnavailableError) as caught:
            await embedder.embed_query(TEXT)
    told = f"{caught.value!r} {dict(caught.value.metadata)} {caught.value.__cause__!r}"
    assert KEY not in told
    assert TEXT not in told
    return caught.value


async def test_asks_as_openai_does_and_scales_to_unit_length(endpoint: Endpoint):
    async with connected(endpoint.url + "/") as embedder:
        vector = await embedder.embed_query(TEXT)
    assert [{"model": "tiny", "input": [TEXT], "encoding_format": "float", "dimensions": 3}] == endpoint.requests
    assert endpoint.heads[0].startswith("POST /v1/embeddings HTTP/1.1")
    assert f"authorization: bearer {KEY}" in endpoint.heads[0].lower()
    assert (np.float32, "tiny") == (vector.dtype, embedder.model)
    np.testing.assert_allclose(vector, np.array([16, 1, 0]) / np.sqrt(257), atol=1e-6)


async def test_learns_its_dimensions_from_a_first_call_unless_given(endpoint: Endpoint):
    async with connected(endpoint.url, dimensions=None, api_key=None) as embedder:
        assert 3 == embedder.dimensions
    assert ["dimensions" in request for request in endpoint.requests] == [False]
    assert "authorization" not in endpoint.heads[0].lower()


async def test_orders_answers_by_their_index_across_batches(endpoint: Endpoint):
    endpoint.answer = lambda request: (200, embeddings(request, reverse=True))
    texts = ["x" * (number * 7 % 300) for number in range(300)]
    async with connected(endpoint.url) as embedder:
        vectors = await embedder.embed_documents(texts)
    assert [128, 128, 44] == [len(request["input"]) for request in endpoint.requests]
    expected = np.array([vector_of(text) for text in texts])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(vectors), expected, atol=1e-6)


async def test_no_documents_cost_no_request(endpoint: Endpoint):
    async with connected(endpoint.url) as embedder:
        assert [] == await embedder.embed_documents([])
    assert [] == endpoint.requests


@pytest.mark.parametrize("first", [(500, b"oops"), (503, b""), (429, b"{}"), None])
async def test_a_passing_failure_is_retried(endpoint: Endpoint, first: Answer):
    ordinary = endpoint.answer
    endpoint.answer = lambda request: first if len(endpoint.requests) == 1 else ordinary(request)
    async with connected(endpoint.url) as embedder:
        await embedder.embed_query(TEXT)
    assert 2 == len(endpoint.requests)


@pytest.mark.parametrize(
    ("answer", "requests", "reason"),
    [
        ((500, TEXT.encode()), 2, "EMBEDDER_UNAVAILABLE"),
        ((429, b""), 2, "EMBEDDER_UNAVAILABLE"),
        (None, 2, "EMBEDDER_UNAVAILABLE"),
        ((401, KEY.encode()), 1, "EMBEDDER_MISCONFIGURED"),
        ((302, b""), 1, "EMBEDDER_MISCONFIGURED"),
        ((200, b"{not json " + TEXT.encode()), 1, "EMBEDDER_UNAVAILABLE"),
        ((200, b"\xff"), 1, "EMBEDDER_UNAVAILABLE"),
        ((200, b'{"data": [{"index": 0, "embedding": ["a"]}]}'), 1, "EMBEDDER_UNAVAILABLE"),
        ((200, b'{"data": []}'), 1, "EMBEDDER_UNAVAILABLE"),
        ((200, b'{"data": [{"index": 1, "embedding": [1, 2, 3]}]}'), 1, "EMBEDDER_UNAVAILABLE"),
        ((200, b'{"data": [{"index": 0, "embedding": [1, 2]}]}'), 1, "EMBEDDER_MISCONFIGURED"),
        ((200, b'{"data": [{"index": 0, "embedding": [0, 0, 0]}]}'), 1, "EMBEDDER_UNAVAILABLE"),
        ((200, b'{"data": [{"index": 0, "embedding": [1e200, 0, 0]}]}'), 1, "EMBEDDER_UNAVAILABLE"),
    ],
)
async def test_a_lasting_failure_is_unavailable(endpoint: Endpoint, answer: Answer, requests: int, reason: str):
    endpoint.answer = lambda _: answer
    assert reason == (await failure_of(endpoint.url)).reason
    assert requests == len(endpoint.requests)


async def test_one_vector_of_another_length_fails_the_batch(endpoint: Endpoint):
    endpoint.answer = lambda request: (200, embeddings(request, length=3 if len(request["input"]) == 1 else 2))
    async with connected(endpoint.url, dimensions=None) as embedder:
        with pytest.raises(EmbedderUnavailableError, match="3 dimensions"):
            await embedder.embed_documents(["a", "b"])


async def test_a_slow_endpoint_meets_the_deadline(endpoint: Endpoint):
    endpoint.gate.clear()
    error = await failure_of(endpoint.url, timeout_s=0.05)
    assert {"cause": "Timeout"} == dict(error.metadata)
    assert 1 == len(endpoint.requests)


@pytest.mark.usefixtures("endpoint")
async def test_a_refused_connection_is_unavailable(unused_tcp_port: int):
    error = await failure_of(f"http://127.0.0.1:{unused_tcp_port}/v1")
    assert ("EMBEDDER_UNAVAILABLE", {"cause": "ConnectError"}) == (error.reason, dict(error.metadata))


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://host/", "http://", "http://host:port"])
async def test_a_malformed_url_is_a_misconfiguration(url: str):
    with pytest.raises(EmbedderUnavailableError, match="URL") as caught:
        await OpenAICompatibleEmbedder.create(url=url, model="tiny", dimensions=3)
    assert "EMBEDDER_MISCONFIGURED" == caught.value.reason


@pytest.mark.parametrize("key", ["line\nbreak", "ключ"])
async def test_a_key_no_header_can_carry_is_a_misconfiguration(key: str):
    with pytest.raises(EmbedderUnavailableError) as caught:
        await OpenAICompatibleEmbedder.create(url="http://localhost", model="tiny", api_key=key, dimensions=3)
    assert key not in str(caught.value)


async def test_a_failed_first_call_fails_creation(endpoint: Endpoint):
    endpoint.answer = lambda _: (404, b"")
    with pytest.raises(EmbedderUnavailableError):
        await OpenAICompatibleEmbedder.create(url=endpoint.url, model="tiny")


async def test_a_closed_embedder_is_unavailable(endpoint: Endpoint):
    async with connected(endpoint.url) as embedder:
        pass
    with pytest.raises(EmbedderUnavailableError):
        await embedder.embed_query(TEXT)


async def test_a_spec_with_a_url_makes_a_cached_http_embedder(endpoint: Endpoint):
    embedder = await create_embedder(EmbeddingSpec(url=endpoint.url, model="tiny", dimensions=3))
    await embedder.embed_query(TEXT)
    await embedder.embed_query(TEXT)
    await embedder.aclose()
    assert 1 == len(endpoint.requests)


async def test_the_endpoint_is_sent_the_trace_and_no_baggage(endpoint: Endpoint):
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    token = context.attach(baggage.set_baggage("pet", "cat"))
    try:
        with tracer.start_as_current_span("asking") as span:
            async with connected(endpoint.url) as embedder:
                await embedder.embed_query(TEXT)
    finally:
        context.detach(token)
    asked = span.get_span_context()
    expected = f"traceparent: 00-{format_trace_id(asked.trace_id)}-{format_span_id(asked.span_id)}-"
    assert expected in endpoint.heads[0].lower()
    assert "baggage" not in endpoint.heads[0].lower()


async def test_without_a_trace_the_endpoint_is_sent_none(endpoint: Endpoint):
    async with connected(endpoint.url) as embedder:
        await embedder.embed_query(TEXT)
    assert "traceparent" not in endpoint.heads[0].lower()
