"""The dense leg on a vector store outside of Postgres, with what the store has not taken in yet laid over it."""

import heapq
from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from lorebank_server.domain.errors import VectorIndexUnavailableError
from lorebank_server.domain.selector import Selector
from lorebank_server.operations.draining import Drainer
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.outbox import PendingWrites
from lorebank_server.ports.storage import RecallPlan
from lorebank_server.ports.vector_index import Nearest
from lorebank_server.ports.vector_store import Generation, VectorStore

MOST_PENDING: Final = 2000
"""Memories that wait in the caller's buckets and are compared exactly; with more, the oldest of them are not."""

BEHIND: Final = (
    f"vector index: more than {MOST_PENDING:,} writes behind, changes made before the latest {MOST_PENDING:,} may be "
    "missed by meaning"
)


class OverlaidIndex:
    """Searches a store, and exactly what waits in the outbox.

    What waits is read before the store is asked: a row that is applied in between is then found twice, which is put
    right here, where the other order would miss it.
    """

    def __init__(self, store: VectorStore, pending: PendingWrites, drainer: Drainer) -> None:
        self._store = store
        self._pending = pending
        self._drainer = drainer

    async def search(
        self, plan: RecallPlan, vector: Vector, selector: Selector, *, now: datetime, limit: int
    ) -> Nearest:
        """The ``limit`` nearest memories; those that wait with their exact cosines.

        Raises:
            StorageUnavailableError: Postgres is away.
            VectorIndexUnavailableError: The store is, and nothing that waits is selected.
        """
        waiting = await self._pending.pending(plan, vector, selector, now=now, limit=MOST_PENDING + 1)
        degraded = (BEHIND,) if len(waiting) > MOST_PENDING else ()
        overlay = {uid: similarity for uid, similarity in waiting.items() if similarity is not None}
        try:
            found = await self._nearest_stored(plan, vector, selector, waiting, now=now, limit=limit)
        except VectorIndexUnavailableError as error:
            if error.reason == "VECTOR_INDEX_NOT_PREPARED":
                self._drainer.store_was_lost()
            if not overlay:
                raise
            return Nearest(_first(overlay, limit), complete=False)
        if not overlay:
            return Nearest(found, degraded)
        unknown = [uid for uid, similarity in found.items() if similarity is None]
        exact = await self._pending.similarities(plan, vector, unknown)
        stored = {uid: similarity for uid, similarity in found.items() if similarity is not None}
        return Nearest(_first({**stored, **exact, **overlay}, limit), degraded)

    async def settle(self) -> None:
        """Give the store a moment to take in what was committed before this call."""
        await self._drainer.settle()

    async def _nearest_stored(
        self,
        plan: RecallPlan,
        vector: Vector,
        selector: Selector,
        waiting: Mapping[UUID, object],
        *,
        now: datetime,
        limit: int,
    ) -> dict[UUID, float | None]:
        """The ``limit`` nearest that the store holds as they are, passing over what waits."""
        generation = Generation(plan.generation, len(vector))
        for spare in sorted({min(len(waiting), limit), len(waiting)}):
            wanted = limit + spare
            found = await self._store.search(
                generation, plan.space_id, plan.buckets, vector, selector, now=now, limit=wanted
            )
            kept = [(uid, similarity) for uid, similarity in found.items() if uid not in waiting]
            if len(kept) >= limit or len(found) < wanted:
                break
        return dict(kept[:limit])


def _first(similarities: Mapping[UUID, float], limit: int) -> dict[UUID, float | None]:
    nearest = heapq.nsmallest(limit, similarities.items(), key=_nearest_first)
    return dict(nearest)


def _nearest_first(entry: tuple[UUID, float]) -> tuple[float, UUID]:
    uid, similarity = entry
    return -similarity, uid
