"""The dense leg on pgvector: exact distances over the narrow table of embeddings."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector import HalfVector

from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.read_session import selection, standing_arguments
from lorebank_server.postgres.statements import statements
from lorebank_server.postgres.storage import ACQUIRE_TIMEOUT_S


class PgvectorIndex:
    """Searches on connections of its own, so that a request's session never waits for one it holds itself."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._recall = statements("recall")

    async def search(
        self,
        space_id: int,
        buckets: Sequence[int],
        vector: Vector,
        selector: Selector,
        *,
        now: datetime,
        limit: int,
    ) -> dict[UUID, float | None]:
        """The ``limit`` nearest memories with their exact cosines, nearest first."""
        nearest = HalfVector(vector), limit
        where: tuple[Any, ...]
        if selector.plain:
            name, where = "dense_candidates", (now,)
        else:
            name, where = "dense_candidates_selected", (*standing_arguments(selector, now), *selection(selector))
        async with translated(), self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            rows = await connection.fetch(self._recall[name], space_id, list(buckets), *where, *nearest)
        return {row["uid"]: row["similarity"] for row in rows}
