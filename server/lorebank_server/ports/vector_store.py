"""The port to a vector store outside of Postgres, whose points are copies of what Postgres holds.

Nothing in it is the truth: all of it can be written again from Postgres, and what it finds is confirmed there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector


@dataclass(frozen=True, slots=True)
class Generation:
    """The vectors of one embedding model; those of two are never compared.

    Attributes:
        number: Under which Postgres keeps the model.
    """

    number: int
    dimensions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorPoint:
    """A memory as the store knows it: its vector and all that a search may filter by.

    Attributes:
        version: Grows with every change of the memory's vector or of what is filtered by.
        stale_time: None when it never becomes stale.
        valid_until: None when it holds without end.
    """

    uid: UUID
    version: int
    vector: Vector
    space_id: int
    bucket_id: int
    id: str
    state: int
    stale_time: datetime | None
    valid_until: datetime | None
    kind: int
    polarity: int
    category: str
    collection: str
    subject: str
    tags: tuple[str, ...]
    agent: str
    run: str
    owner: str
    create_time: datetime


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """What the store holds of one memory."""

    uid: UUID
    space_id: int
    version: int


class VectorStore(Protocol):
    """A store of points, apart for each generation; safe to share between tasks.

    Every call raises ``VectorIndexUnavailableError`` when the store does not answer in time or refuses; its reason is
    ``VECTOR_INDEX_UNAVAILABLE`` where a later try may succeed, ``VECTOR_INDEX_NOT_PREPARED`` where the generation has
    to be prepared first (again, if the store lost it), and ``VECTOR_INDEX_MISCONFIGURED`` where settings are at
    fault. A write that failed may have happened in part, and may still take effect later.
    """

    async def prepare(self, generation: Generation) -> bool:
        """Make room for a generation; returns whether it holds nothing, so that it has to be filled.

        Safe to repeat and to run on several servers at once. Nothing remembers who was told to fill: until there is
        a first point, everyone is told so.
        """
        ...

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
        """The ``limit`` nearest by cosine among the selected of these buckets, nearest first; ties in any order.

        Each with its cosine where the store knows the same number that Postgres would compute, else None. Scopes
        and project of the selector count as resolved in the buckets.
        """
        ...

    async def upsert(self, generation: Generation, points: Sequence[VectorPoint]) -> None:
        """Write points whole, searchable on return; their uids are distinct.

        Where the store can, a point that it holds in a later version is left as it is. One of the same version is
        written again. A point that was deleted meanwhile comes back.
        """
        ...

    async def delete(self, generation: Generation, uids: Sequence[UUID]) -> None:
        """Remove points, whatever their version; those that are not there, or not prepared, are removed already."""
        ...

    async def scan(
        self, generation: Generation, *, space_id: int | None, after: UUID | None, limit: int
    ) -> list[StoredVersion]:
        """Up to ``limit`` points with a uid above ``after``, in order of uid, of one space or of all.

        Fewer than ``limit`` are the last. Not prepared means empty.
        """
        ...

    async def drop(self, generation: Generation) -> None:
        """Remove all of a generation, if there is any."""
        ...

    async def check(self) -> None:
        """Return when the store answers and takes the credentials."""
        ...

    async def aclose(self) -> None:
        """Release connections; calls made afterwards fail. Safe to repeat."""
        ...
