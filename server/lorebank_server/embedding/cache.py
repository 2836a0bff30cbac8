"""A cache around any embedder, in which nobody embeds what somebody else is embedding already."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from lorebank_server.embedding.failures import unavailable
from lorebank_server.ports.embedder import Embedder, Vector
from lorebank_server.ports.stages import note

DEFAULT_CACHE_SIZE = 4096
"""Vectors kept of each kind; with 384 dimensions 6 MiB."""

_Compute = Callable[[list[str]], Coroutine[None, None, list[Vector]]]


@dataclass(slots=True, eq=False)
class _Flight:
    """One computation under way and how many callers wait for it."""

    task: asyncio.Task[dict[str, Vector]]
    keys: list[str]
    waiters: int = 0


class VectorCache:
    """Vectors by key: the most recently used, and those being computed.

    Attributes:
        hits: Texts answered without a computation of their own, joined computations included.
        misses: Texts that had to be computed.
    """

    def __init__(self, size: int) -> None:
        self.hits = 0
        self.misses = 0
        self._size = size
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        self._flights: dict[str, _Flight] = {}

    async def resolve(self, texts: Mapping[str, str], compute: _Compute) -> dict[str, Vector]:
        """Find vectors by key, computing the ones that are neither kept nor under way in one go.

        A caller's cancellation ends a computation only if nobody else waits for it.

        Args:
            texts: The text behind each key.
            compute: Embeds texts in the order given.

        Returns:
            A vector for every key.

        Raises:
            EmbedderUnavailableError: A computation failed, this caller's or one that it joined.
        """
        found: dict[str, Vector] = {}
        joined: set[_Flight] = set()
        missing: list[str] = []
        for key in texts:
            if key in self._vectors:
                self._vectors.move_to_end(key)
                found[key] = self._vectors[key]
            elif key in self._flights:
                joined.add(self._flights[key])
            else:
                missing.append(key)
        self.hits += len(texts) - len(missing)
        self.misses += len(missing)
        note(texts=len(texts), cache_hits=len(texts) - len(missing))
        if missing:
            joined.add(self._start({key: texts[key] for key in missing}, compute))
        found.update(await self._wait(joined))
        return {key: found[key] for key in texts}

    async def aclose(self) -> None:
        """Cancel what is under way, failing those who wait for it, and forget every vector."""
        tasks = {flight.task for flight in self._flights.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._vectors.clear()

    def _start(self, texts: Mapping[str, str], compute: _Compute) -> _Flight:
        async def run() -> dict[str, Vector]:
            return dict(zip(texts, await compute(list(texts.values())), strict=True))

        flight = _Flight(asyncio.get_running_loop().create_task(run()), list(texts))
        self._flights.update(dict.fromkeys(texts, flight))
        flight.task.add_done_callback(lambda _: self._land(flight))
        return flight

    def _land(self, flight: _Flight) -> None:
        self._forget(flight)
        # Asking for the exception also marks it as seen, should every waiter have left.
        if flight.task.cancelled() or flight.task.exception():
            return
        self._vectors.update(flight.task.result())
        while len(self._vectors) > self._size:
            self._vectors.popitem(last=False)

    def _forget(self, flight: _Flight) -> None:
        for key in flight.keys:
            if self._flights.get(key) is flight:
                del self._flights[key]

    async def _wait(self, flights: set[_Flight]) -> dict[str, Vector]:
        found: dict[str, Vector] = {}
        for flight in flights:
            flight.waiters += 1
        try:
            if flights:
                # Unlike awaiting the tasks, this does not hand a cancellation on to them.
                await asyncio.wait([flight.task for flight in flights])
            for flight in flights:
                if flight.task.cancelled():
                    raise unavailable("The embedder is closed.")
                found.update(flight.task.result())
        finally:
            for flight in flights:
                flight.waiters -= 1
                if flight.waiters == 0 and not flight.task.done():
                    # Forgotten at once, so that nobody joins what is about to end.
                    self._forget(flight)
                    flight.task.cancel()
        return found


class CachedEmbedder:
    """Remembers vectors of the embedder it wraps, and owns that embedder.

    Queries are kept by their text, documents by its SHA-256, apart from each other. Vectors handed out are
    shared between callers and therefore read-only.

    Attributes:
        queries: The queries' cache, with its ``hits`` and ``misses``.
        documents: The documents' cache, with its ``hits`` and ``misses``.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        query_cache_size: int = DEFAULT_CACHE_SIZE,
        document_cache_size: int = DEFAULT_CACHE_SIZE,
    ) -> None:
        self._embedder = embedder
        self.queries = VectorCache(query_cache_size)
        self.documents = VectorCache(document_cache_size)

    @property
    def model(self) -> str:
        """Identity of the wrapped model."""
        return self._embedder.model

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._embedder.dimensions

    async def embed_query(self, text: str) -> Vector:
        """Embed one query, or remember it.

        Raises:
            EmbedderUnavailableError: The wrapped embedder failed; failures are not remembered.
        """

        async def compute(_texts: list[str]) -> list[Vector]:
            return [await self._embedder.embed_query(text)]

        return (await self.queries.resolve({text: text}, compute))[text]

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """Embed texts in the order given, each distinct unknown one once; none for none.

        Raises:
            EmbedderUnavailableError: The wrapped embedder failed; failures are not remembered.
        """
        keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        distinct = dict(zip(keys, texts, strict=True))
        vectors = await self.documents.resolve(distinct, self._embedder.embed_documents)
        self.documents.hits += len(keys) - len(distinct)
        return [vectors[key] for key in keys]

    async def aclose(self) -> None:
        """Fail the calls under way, then close the wrapped embedder."""
        await self.queries.aclose()
        await self.documents.aclose()
        await self._embedder.aclose()
