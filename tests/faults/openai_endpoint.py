"""An embedding service that speaks the OpenAI protocol and has the real model behind it."""

import asyncio
import contextlib
import json
from typing import Self

from lorebank_server.ports.embedder import Embedder


class OpenAIEndpoint:
    """Answers ``POST /v1/embeddings``; ``async with`` starts and stops it.

    Attributes:
        embedder: What it answers with.
        texts: How many it has embedded.
        refused: Texts that contain one of these are answered with 400.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.texts = 0
        self.refused: set[str] = set()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                (length,) = (
                    int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")
                )
                request = json.loads(await reader.readexactly(length))
                status, body = await self._answer(request["input"])
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()

    async def _answer(self, texts: list[str]) -> tuple[int, bytes]:
        if any(word in text for word in self.refused for text in texts):
            return 400, b"{}"
        vectors = await self.embedder.embed_documents(texts)
        self.texts += len(texts)
        data = [{"index": index, "embedding": vector.tolist()} for index, vector in enumerate(vectors)]
        return 200, json.dumps({"data": data}).encode()
