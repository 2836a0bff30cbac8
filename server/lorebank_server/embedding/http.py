"""The embedder that asks an OpenAI-compatible endpoint."""

import asyncio
from collections.abc import Sequence
from typing import Self

import httpx
import msgspec
import numpy as np
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lorebank_server.embedding.failures import misconfigured, unavailable
from lorebank_server.embedding.model_time import InputKind, model_run
from lorebank_server.embedding.unit_length import to_unit_vectors
from lorebank_server.ports.embedder import Vector

MAX_BATCH_TEXTS = 128
"""Most texts in one request."""

DEFAULT_RETRY_DELAY_S = 0.1
"""Pause before the one retry, in seconds."""

_TRACE_CONTEXT = TraceContextTextMapPropagator()
_CONNECTION_FAILURES = (httpx.NetworkError, httpx.RemoteProtocolError)


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


class OpenAICompatibleEmbedder:
    """Embeds by ``POST {url}/embeddings``.

    A request that meets a connection failure, a 5xx or a 429 is sent once more; nothing else is. Errors name
    the kind of failure or the HTTP status, never a text, the key or what the endpoint answered.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: httpx.URL,
        *,
        model: str,
        requested_dimensions: int | None,
        timeout_s: float,
        retry_delay_s: float,
    ) -> None:
        self._client = client
        self._url = url
        self._model = model
        self._requested_dimensions = requested_dimensions
        self._dimensions = requested_dimensions or 0
        self._timeout_s = timeout_s
        self._retry_delay_s = retry_delay_s

    @classmethod
    async def create(
        cls,
        *,
        url: str,
        model: str,
        api_key: str | None = None,
        dimensions: int | None = None,
        timeout_s: float = 10.0,
        retry_delay_s: float = DEFAULT_RETRY_DELAY_S,
    ) -> Self:
        """Open a client, and ask the endpoint for its dimensions unless they are given.

        Args:
            url: Address that ``/embeddings`` is added to, for example ``http://localhost:11434/v1``.
            model: The endpoint's name for the model; recorded with every vector.
            api_key: Sent as a bearer token if given.
            dimensions: Length to ask for and to insist on; None takes what the model gives.
            timeout_s: Deadline in seconds for each request, its retry included.
            retry_delay_s: Pause before the retry, in seconds.

        Raises:
            EmbedderUnavailableError: A setting is malformed, or the endpoint did not tell its dimensions.
        """
        client = _open_client(api_key, timeout_s)
        try:
            embedder = cls(
                client,
                _embeddings_url(url),
                model=model,
                requested_dimensions=dimensions,
                timeout_s=timeout_s,
                retry_delay_s=retry_delay_s,
            )
            if dimensions is None:
                embedder._dimensions = (await embedder.embed_query("dimensions")).size
        except BaseException:
            await client.aclose()
            raise
        return embedder

    @property
    def model(self) -> str:
        """Identity of the model, recorded with every vector it made."""
        return self._model

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._dimensions

    async def embed_query(self, text: str) -> Vector:
        """Embed one query in one request.

        Raises:
            EmbedderUnavailableError: The endpoint failed, was too slow or answered something else.
        """
        return (await self._embed("query", [text]))[0]

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """Embed texts in the order given, up to 128 a request, one request after the other; none for none.

        Raises:
            EmbedderUnavailableError: As for ``embed_query``; a failed request fails the whole call.
        """
        vectors: list[Vector] = []
        for start in range(0, len(texts), MAX_BATCH_TEXTS):
            vectors += await self._embed("document", texts[start : start + MAX_BATCH_TEXTS])
        return vectors

    async def aclose(self) -> None:
        """Close all connections; safe to call twice."""
        await self._client.aclose()

    async def _embed(self, kind: InputKind, texts: Sequence[str]) -> list[Vector]:
        if self._client.is_closed:
            raise unavailable("The embedder is closed.")
        body: dict[str, object] = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        if self._requested_dimensions is not None:
            body["dimensions"] = self._requested_dimensions
        try:
            with model_run(kind, texts=len(texts)):
                response = await self._answer(msgspec.json.encode(body))
        except (TimeoutError, httpx.TimeoutException):
            raise unavailable("The embedding endpoint did not answer in time; retry.", cause="Timeout") from None
        except httpx.HTTPError as error:
            # Without its chain: a refused header's error quotes the header, and so the key.
            raise unavailable("The embedding endpoint cannot be reached; retry.", cause=type(error).__name__) from None
        return await asyncio.to_thread(self._decode, response.content, len(texts))

    async def _answer(self, body: bytes) -> httpx.Response:
        async with asyncio.timeout(self._timeout_s):
            response = await self._post(body)
        _check_status(response.status_code)
        return response

    async def _post(self, body: bytes) -> httpx.Response:
        # The trace, and not the baggage that callers may have sent along.
        trace_headers: dict[str, str] = {}
        _TRACE_CONTEXT.inject(trace_headers)
        try:
            response = await self._client.post(self._url, content=body, headers=trace_headers)
            if response.status_code < 500 and response.status_code != httpx.codes.TOO_MANY_REQUESTS:
                return response
        except _CONNECTION_FAILURES:
            pass
        await asyncio.sleep(self._retry_delay_s)
        return await self._client.post(self._url, content=body, headers=trace_headers)

    def _decode(self, content: bytes, count: int) -> list[Vector]:
        try:
            items = sorted(msgspec.json.decode(content, type=_Answer).data, key=lambda item: item.index)
        except msgspec.MsgspecError:
            raise unavailable("The embedding endpoint answered something that is not embeddings.") from None
        if [item.index for item in items] != list(range(count)):
            raise unavailable("The embedding endpoint did not answer one embedding for each text.")
        expected = self._dimensions or len(items[0].embedding)
        lengths = {len(item.embedding) for item in items}
        if lengths != {expected} or expected == 0:
            raise misconfigured(
                f"The embedding endpoint answered vectors that do not have {expected} dimensions; check its model."
            )
        return to_unit_vectors(np.array([item.embedding for item in items], dtype=np.float64))


def _open_client(api_key: str | None, timeout_s: float) -> httpx.AsyncClient:
    headers = {"Content-Type": "application/json"}
    if api_key:
        if not (api_key.isascii() and api_key.isprintable()):
            raise misconfigured("The embedding endpoint's key holds characters that no header can carry.")
        headers["Authorization"] = f"Bearer {api_key}"
    return httpx.AsyncClient(headers=headers, timeout=timeout_s)


def _embeddings_url(url: str) -> httpx.URL:
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL:
        base = httpx.URL("")
    if base.scheme not in {"http", "https"} or not base.host:
        raise misconfigured("The embedding endpoint's URL must begin with http:// or https:// and a host.")
    return base.copy_with(path=base.path.rstrip("/") + "/embeddings")


def _check_status(status: int) -> None:
    if status == httpx.codes.OK:
        return
    if status >= 500 or status == httpx.codes.TOO_MANY_REQUESTS:
        raise unavailable("The embedding endpoint is overloaded or down; retry later.", status=str(status))
    raise misconfigured("The embedding endpoint refused the request; check its URL, model and key.", status=str(status))
