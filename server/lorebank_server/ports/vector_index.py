"""The port to the vector index: the dense leg of recall."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.storage import RecallPlan


@dataclass(frozen=True, slots=True)
class Nearest:
    """What the dense leg found.

    Attributes:
        similarities: Nearest first, each with its exact cosine, or None where only an approximation is known.
        degraded: How the answer suffers from what did not work; empty when all is well.
        complete: False when the index is away and only the latest writes, which it does not hold yet, were compared.
    """

    similarities: dict[UUID, float | None]
    degraded: tuple[str, ...] = ()
    complete: bool = True


class VectorIndex(Protocol):
    """Finds nearest neighbours among a space's vectors; safe to share between tasks.

    What it returns are candidates: the storage confirms each before it counts. It may work while a session of the
    same request does.
    """

    async def search(
        self, plan: RecallPlan, vector: Vector, selector: Selector, *, now: datetime, limit: int
    ) -> Nearest:
        """The ``limit`` nearest memories by cosine among the selected ones of the plan's buckets.

        Raises:
            StorageUnavailableError: Postgres is away.
            VectorIndexUnavailableError: The index is.
        """
        ...

    async def settle(self) -> None:
        """Give the index a moment to take in what was committed before this call; never fails."""
        ...
