"""The port to all that Postgres holds of a space, whoever may read it: for comparing rows with vectors.

Every call may raise ``StorageUnavailableError``.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from lorebank_server.domain.memory import Draft
from lorebank_server.ports.vector_store import Generation, StoredVersion


@dataclass(frozen=True, slots=True)
class SpaceFacts:
    """A space as the database stands.

    Attributes:
        generation: What it is searched by; None as long as no server has adopted it.
        unembedded: Memories that wait for the embedding model.
        pending: Memories whose changes wait to be applied to an index outside of Postgres.
        oldest_enqueue_time: When the oldest change was made; None when there are none.
        schema: Number of the latest migration.
        postgres_version: As Postgres states it.
    """

    generation: Generation | None
    unembedded: int
    pending: int
    oldest_enqueue_time: datetime | None
    schema: int
    postgres_version: str


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """A memory beside the vector that Postgres keeps of it.

    Attributes:
        text_hash: SHA-256 of the text that was embedded; None without a vector.
        aligned: Whether the columns that recall filters vectors by say what the memory does.
    """

    uid: UUID
    draft: Draft
    create_time: datetime
    text_hash: bytes | None
    aligned: bool


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """A vector as Postgres keeps it at the moment.

    Attributes:
        version: None when there is no such vector.
        pending: Whether a change of its memory waits to be applied.
    """

    version: int | None
    pending: bool


class InventorySession(Protocol):
    """Reads everything at one moment, and beside that what is true now; repairs are committed one by one."""

    async def facts(self, space_id: int) -> SpaceFacts:
        """The space as the database stands now."""
        ...

    async def spaces(self) -> frozenset[int]:
        """Numbers of all spaces there are now."""
        ...

    async def generations(self, space_id: int | None) -> list[Generation]:
        """What there are vectors of now, in one space or in all, in order of number."""
        ...

    def memories(self, space_id: int, generation: Generation) -> AsyncIterator[Sequence[KeptMemory]]:
        """Every memory as of the session's beginning, in pages, in no order."""
        ...

    def versions(self, space_id: int, generation: Generation) -> AsyncIterator[Sequence[tuple[UUID, int]]]:
        """Every vector's memory and version as of the session's beginning, in pages, in order of uid."""
        ...

    async def current(self, generation: Generation, uids: Collection[UUID]) -> Mapping[UUID, KeptVersion]:
        """How these vectors stand now; complete."""
        ...

    async def strays(self, space_id: int) -> list[UUID]:
        """Vectors of the space in Postgres that belong to no memory."""
        ...

    async def await_embedding(self, uids: Collection[UUID]) -> None:
        """Have these memories embedded in the background."""
        ...

    async def align(self, uids: Collection[UUID]) -> None:
        """Let the vectors of these memories be filtered by what the memories say."""
        ...

    async def discard(self, uids: Collection[UUID]) -> None:
        """Delete the vectors of these memories from Postgres, unless there is such a memory."""
        ...

    async def renew(self, generation: Generation, uids: Collection[UUID], *, above: int) -> None:
        """Give these vectors a version higher than any so far and than ``above``, and so have them applied anew."""
        ...

    async def enqueue(self, points: Sequence[StoredVersion]) -> None:
        """Have these memories applied anew, whether or not they exist."""
        ...


class Inventory(Protocol):
    """Opens sessions."""

    def session(self) -> AbstractAsyncContextManager[InventorySession]:
        """A session, with connections of its own."""
        ...
