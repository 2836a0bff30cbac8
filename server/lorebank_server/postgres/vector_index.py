"""The dense leg on pgvector, over the narrow table of embeddings: exact, or by an index where a space is large."""

from datetime import datetime
from typing import Any

from pgvector import HalfVector

from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.storage import RecallPlan
from lorebank_server.ports.vector_index import Nearest
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.read_session import selection, standing_arguments
from lorebank_server.postgres.statements import statements
from lorebank_server.postgres.storage import ACQUIRE_TIMEOUT_S


class PgvectorIndex:
    """Searches on connections of its own, so that a request's session never waits for one it holds itself.

    Vectors are written in the transaction of their memory, so there is nothing to settle.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._recall = statements("recall")

    async def search(
        self, plan: RecallPlan, vector: Vector, selector: Selector, *, now: datetime, limit: int
    ) -> Nearest:
        """The ``limit`` nearest memories with their exact cosines, nearest first."""
        nearest = HalfVector(vector), limit, plan.generation
        where: tuple[Any, ...]
        if selector.plain:
            name, where = "dense_candidates", (now, *nearest, plan.documents)
        else:
            name, where = (
                "dense_candidates_selected",
                (*standing_arguments(selector, now), *selection(selector), *nearest),
            )
        async with translated(), self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            rows = await connection.fetch(self._recall[name], plan.space_id, list(plan.buckets), *where)
        return Nearest({row["uid"]: row["similarity"] for row in rows})

    async def settle(self) -> None:
        """Return at once."""
