"""The port to a vector index: the dense leg of recall."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector


class VectorIndex(Protocol):
    """Finds nearest neighbours among a space's vectors; safe to share between tasks.

    What it returns are candidates: the storage confirms each before it counts. It may work while a session of the
    same request does.
    """

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
        """The ``limit`` nearest memories by cosine, nearest first, among the selected ones of these buckets.

        Each with its exact cosine, or None where the index knows only an approximation.

        Raises:
            StorageUnavailableError: The index is away.
        """
        ...
