"""The ports to the outbox: what a vector store outside of Postgres has not taken in yet.

Every change of a vector, or of what is filtered by, leaves a row in the transaction that makes it. Rows say which
memory changed, never how: whoever takes a row away reads the memory's present state and writes that, so the order of
rows does not matter and applying one twice does no harm. Every call may raise ``StorageUnavailableError``.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.storage import RecallPlan
from lorebank_server.ports.vector_store import Generation, StoredVersion, VectorPoint


@dataclass(frozen=True, slots=True)
class Work:
    """Memories that nobody else applies meanwhile, as they are now.

    Attributes:
        memories: How many there are.
        points: What the store has to hold, by generation.
        gone: What it must not hold, by generation.
    """

    memories: int
    points: Mapping[Generation, Sequence[VectorPoint]]
    gone: Mapping[Generation, Sequence[UUID]]


class Outbox(Protocol):
    """The side of whoever applies changes to the store; one task at a time, any number of processes."""

    async def open(self) -> None:
        """See to it that every change is enqueued from now on, and everything that was not before. Idempotent."""
        ...

    def claim(self, limit: int) -> AbstractAsyncContextManager[Work]:
        """Up to ``limit`` memories that wait, the longest waiting first, for the length of the block.

        That they are being written is on record before the block begins. When it ends well, they wait no longer,
        except for those of which an earlier write may still be under way: they are due once more when that has
        become impossible. When it ends with an error, they wait longer the more often that happened. When the
        process dies within, the next to claim them takes its write for one that may be under way.
        """
        ...

    async def generations(self) -> list[Generation]:
        """What the store keeps, or is about to, in order of number."""
        ...

    async def fill(self, generation: Generation, prepare: Callable[[], Awaitable[bool]]) -> None:
        """Have the store prepared; all of the generation is enqueued if there was no room, or may have been none.

        Raises:
            VectorIndexUnavailableError: As ``prepare`` does, or because another process is at it.
        """
        ...

    async def unswept(self) -> list[Generation]:
        """Generations of which the store may hold what Postgres does not."""
        ...

    async def enqueue_strays(self, generation: Generation, found: Sequence[StoredVersion]) -> int:
        """Enqueue those of ``found`` that Postgres has no vector of, and return how many they are."""
        ...

    async def finish_sweep(self, generation: Generation) -> None:
        """Note that the store holds nothing any more that is neither in Postgres nor enqueued."""
        ...

    async def backlog(self) -> tuple[int, datetime | None]:
        """How many changes were never applied, and when the oldest of them was made."""
        ...

    async def aclose(self) -> None:
        """Release the connection and all claims; another call opens it again."""
        ...


class PendingWrites(Protocol):
    """The side of whoever searches; safe to share between tasks."""

    async def pending(
        self, plan: RecallPlan, vector: Vector, selector: Selector, *, now: datetime, limit: int
    ) -> dict[UUID, float | None]:
        """Every memory of the plan's buckets that waits, but at most the latest ``limit``.

        Each with its exact cosine, or None when it is not selected or has no vector.
        """
        ...

    async def similarities(self, plan: RecallPlan, vector: Vector, uids: Sequence[UUID]) -> dict[UUID, float]:
        """Exact cosines of those of these memories that lie in the plan's buckets and have a vector."""
        ...
