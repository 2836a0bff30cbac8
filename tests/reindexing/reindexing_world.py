"""A server with two small models, and what its database and its vector store hold."""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import asyncpg
import numpy as np

from lorebank import Aborted, AsyncClient, Memory
from lorebank.v1.maintenance_pb2 import ReindexResponse
from lorebank_server.domain.errors import EmbedderUnavailableError
from lorebank_server.serving import Running

FIRST = "first-words"
SECOND = "second-words"
FACTS = [
    f"The {place} opens at {hour} on {day}s."
    for place in ("mill", "pier")
    for hour in ("nine", "ten", "noon")
    for day in ("Monday", "Friday", "Sunday")
]

PATIENCE_S = 30.0

_VECTORS = """
select g.model, vector_dims(e.embedding) as length, count(*) as n
from embeddings e join embedding_models g on g.number = e.model group by 1, 2
"""
_BARE = """
select count(*)
from memories m join spaces s on s.number = m.space_id
where not exists (select from embeddings e where e.memory = m.uid and e.model = s.embedding_model)
"""


class WordEmbedder:
    """Texts that share words are near each other; every model puts its words elsewhere.

    Attributes:
        embedded: Texts embedded as documents, as often as they were.
        queries: How many were embedded.
        most: Documents that are embedded before it waits for the gate, which then is closed.
        gate: Documents wait for it.
        away: Nothing is answered.
        refused: Documents with this word are refused.
    """

    def __init__(self, model: str, dimensions: int) -> None:
        self.model = model
        self.dimensions = dimensions
        self.embedded: list[str] = []
        self.queries = 0
        self.most = 1_000_000
        self.gate = asyncio.Event()
        self.gate.set()
        self.away = False
        self.refused = ""

    async def embed_query(self, text: str) -> np.ndarray:
        self._answer()
        self.queries += 1
        return self.vector(text)

    async def embed_documents(self, texts: Sequence[str]) -> list[np.ndarray]:
        if len(self.embedded) >= self.most:
            self.gate.clear()
        await self.gate.wait()
        self._answer()
        if self.refused and any(self.refused in text for text in texts):
            raise EmbedderUnavailableError("refused", reason="EMBEDDER_MISCONFIGURED")
        self.embedded += texts
        return [self.vector(text) for text in texts]

    async def aclose(self) -> None:
        pass

    def vector(self, text: str) -> np.ndarray:
        total = np.full(self.dimensions, 1e-3)
        for word in set(re.findall(r"\w+", text.lower())):
            seed = int.from_bytes(hashlib.sha256(f"{self.model}/{word}".encode()).digest()[:8])
            total += np.random.default_rng(seed).normal(size=self.dimensions)
        return (total / np.linalg.norm(total)).astype(np.float32)

    def _answer(self) -> None:
        if self.away:
            raise EmbedderUnavailableError("away", reason="EMBEDDER_UNAVAILABLE")


@dataclass
class World:
    """A server, its database, and its models: spaces begin with the first."""

    running: Running
    client: AsyncClient
    connection: asyncpg.Connection
    dsn: str
    first: WordEmbedder
    second: WordEmbedder
    told: list[ReindexResponse] = field(default_factory=list)

    async def store(self, *contents: str) -> list[str]:
        items = [item async for item in self.client.store_many(Memory(content=content) for content in contents)]
        return [item.response.memory.id for item in items]

    def client_with(self, secret: str) -> AsyncClient:
        return AsyncClient(f"127.0.0.1:{self.running.port}", api_key=secret)

    async def vectors(self) -> dict[tuple[str, int], int]:
        """Vectors by model and length."""
        return {(row["model"], row["length"]): row["n"] for row in await self.connection.fetch(_VECTORS)}

    async def look(self, query: str) -> Any:
        """One value, asked beside whatever the connection is used for."""
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    async def bare(self) -> int:
        """Memories without a vector of their space's model."""
        return await self.connection.fetchval(_BARE)

    async def reindex(self, model: str = "", *, client: AsyncClient | None = None) -> list[ReindexResponse]:
        """Reindex to the end; what was told is in ``told`` too as soon as it is."""
        self.told = []
        async for step in (client or self.client).spaces.reindex(model=model):
            self.told.append(step)
        return self.told

    async def reindex_again(self, model: str = "") -> list[ReindexResponse]:
        """Reindex as soon as what was broken off is over."""

        async def begun() -> bool:
            try:
                await self.reindex(model)
            except Aborted as error:
                if error.reason != "REINDEXING_UNDER_WAY":
                    raise
                return False
            return True

        await eventually(begun)
        return self.told

    async def until(self, phase: str, done: int = 0) -> None:
        """Return once the present reindexing has told so much."""
        await eventually(lambda: any(step.phase == phase and step.done >= done for step in self.told))

    async def nearest(self, query: str, **options: Any) -> str:
        """The best hit by meaning alone."""
        answer = await self.client.find(query, mode="semantic", limit=1, **options)
        assert [] == list(answer.degraded)
        return answer.hits[0].memory.id if answer.hits else ""


OpenWorld = Callable[..., AbstractAsyncContextManager[World]]


async def eventually(condition: Callable[[], Any | Awaitable[Any]], *, timeout_s: float = PATIENCE_S) -> Any:
    """What the condition gives once it holds."""
    async with asyncio.timeout(timeout_s):
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.005)


def check_progress(told: Sequence[ReindexResponse]) -> None:
    """Phases in order, numbers that never fall, and every phase complete."""
    order = ["embedding", "indexing", "switching", "finished"]
    assert [phase for phase in order if any(step.phase == phase for step in told)] == order
    assert sorted(told, key=lambda step: order.index(step.phase)) == list(told)
    for phase in order:
        steps = [(step.done, step.total) for step in told if step.phase == phase]
        for before, after in pairwise(steps):
            assert before[0] <= after[0]
            assert before[1] <= after[1]
        assert all(done <= total for done, total in steps)
        assert steps[-1][0] == steps[-1][1]
