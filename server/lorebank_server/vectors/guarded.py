"""A vector store behind a circuit breaker, so that a store that is away costs searches no time."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from lorebank_server.circuit_breaker import CircuitBreaker, CircuitOpenError
from lorebank_server.domain.errors import VectorIndexUnavailableError
from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.vector_store import Generation, StoredVersion, VectorPoint, VectorStore
from lorebank_server.vectors.failures import UNAVAILABLE, unavailable


class GuardedStore:
    """Searches the store it owns, unless that did not answer lately.

    Everything else passes through: no caller waits for it, and who repeats it has a pace of his own.

    Attributes:
        breaker: Counts searches alone.
    """

    def __init__(self, store: VectorStore, breaker: CircuitBreaker | None = None) -> None:
        self.breaker = breaker or CircuitBreaker("vector index", is_failure=is_outage)
        self._store = store

    async def search(
        self,
        generation: Generation,
        space_id: int,
        buckets: Sequence[int],
        vector: Vector,
        selector: Selector,
        *,
        now: datetime,
        limit: int,
    ) -> dict[UUID, float | None]:
        """Search the store.

        Raises:
            VectorIndexUnavailableError: It failed, or is left alone for now.
        """
        try:
            with self.breaker.attempt():
                return await self._store.search(generation, space_id, buckets, vector, selector, now=now, limit=limit)
        except CircuitOpenError:
            raise unavailable(
                "The vector store did not answer lately and is asked again in a few seconds.", cause="CircuitOpen"
            ) from None

    async def prepare(self, generation: Generation) -> bool:
        """Make room for a generation in the store."""
        return await self._store.prepare(generation)

    async def upsert(self, generation: Generation, points: Sequence[VectorPoint]) -> None:
        """Write points to the store."""
        await self._store.upsert(generation, points)

    async def delete(self, generation: Generation, uids: Sequence[UUID]) -> None:
        """Remove points from the store."""
        await self._store.delete(generation, uids)

    async def scan(
        self, generation: Generation, *, space_id: int | None, after: UUID | None, limit: int
    ) -> list[StoredVersion]:
        """A page of what the store holds."""
        return await self._store.scan(generation, space_id=space_id, after=after, limit=limit)

    async def drop(self, generation: Generation) -> None:
        """Remove a generation from the store."""
        await self._store.drop(generation)

    async def check(self) -> None:
        """Return when the store answers, whatever the breaker thinks."""
        await self._store.check()

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()


def is_outage(error: Exception) -> bool:
    """Whether a store's exception means that no search would be answered now."""
    return isinstance(error, VectorIndexUnavailableError) and error.reason == UNAVAILABLE
