"""The ports to moving a space to other vectors: what is kept of it in Postgres, and the index that searches it.

Every call may raise ``StorageUnavailableError``, and ``WriteConflictError`` where it changes something; repeating it
then is safe.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.vector_store import Generation


@dataclass(frozen=True, slots=True)
class BareMemory:
    """A memory without a vector of the generation that is wanted.

    Attributes:
        text: What is to be embedded, as of ``revision``.
    """

    uid: UUID
    revision: int
    create_time: datetime
    text: str


class ReindexSession(Protocol):
    """The vectors of one space, on the way to one generation. Nobody else has such a session on the space."""

    async def census(self) -> tuple[int, int]:
        """How many memories there are, in every state, and how many of them are bare."""
        ...

    async def bare(self, after: BareMemory | None, limit: int, *, besides: Collection[UUID]) -> list[BareMemory]:
        """Up to ``limit`` bare memories, those ``besides`` left out, in order of creation and behind ``after``."""
        ...

    async def write(self, vectors: Mapping[BareMemory, Vector]) -> set[UUID]:
        """Keep vectors of memories that are still at that revision and that nobody is changing; returns which."""
        ...

    def undisturbed(self) -> AbstractAsyncContextManager[None]:
        """A transaction in which nobody else gives the space a vector; whoever wants to waits for its end."""
        ...

    async def switch(self, awaiting: Collection[UUID]) -> None:
        """Have the space searched by the generation from now on, and count one rebuild of its vectors.

        Args:
            awaiting: Memories that are left to be embedded in the background.

        Raises:
            NotFoundError: The space was deleted.
        """
        ...

    async def count_former(self) -> int:
        """How many vectors there are of other generations than the one that the space is searched by."""
        ...

    async def remove_former(self, limit: int) -> int:
        """Remove up to ``limit`` of these; returns how many."""
        ...


class Reindexing(Protocol):
    """Opens sessions."""

    def session(self, space_id: int, generation: int) -> AbstractAsyncContextManager[ReindexSession]:
        """A session, which ends with the block, or with the process.

        Raises:
            AbortedError: There is another on this space, of whatever server.
        """
        ...


class IndexRebuild(Protocol):
    """Has an index hold the vectors that Postgres keeps of a space, and nothing else of it.

    Where the index is outside of Postgres, calls raise ``VectorIndexUnavailableError`` when it does not answer.
    """

    async def prepare(self, generation: Generation) -> None:
        """Make room for a generation that may be new to it."""
        ...

    async def rebuild(
        self, space_id: int, generation: Generation, *, anew: bool, tell: Callable[[int, int], Awaitable[None]]
    ) -> None:
        """Return once the index holds the vectors of the space that are kept now.

        Args:
            space_id: Number of the space.
            generation: Which vectors.
            anew: Whether to write what it seems to hold already.
            tell: Called with the vectors done and all of them, neither ever smaller than before.
        """
        ...

    async def retire(self, space_id: int, generation: Generation) -> None:
        """Give up what the index keeps for other generations than this one, as far as nobody needs it any more."""
        ...
