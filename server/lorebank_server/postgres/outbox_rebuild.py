"""Has a vector store outside of Postgres take in a space anew, by way of the outbox."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

from lorebank_server.domain.errors import VectorIndexUnavailableError
from lorebank_server.ports.vector_store import Generation, VectorStore
from lorebank_server.postgres.connection import owner_connection
from lorebank_server.postgres.outbox import PostgresOutbox
from lorebank_server.postgres.statements import statements

STALLED_S = 60.0
"""How long nothing may be applied before the store counts as away."""

_LOOK_S: Final = 0.1
_SCANNED_AT_ONCE: Final = 1000


class OutboxRebuild:
    """Enqueues and waits; the drainers of all servers do the work."""

    def __init__(self, dsn: str, store: VectorStore) -> None:
        """Connect as the owner of the schema; the store stays its owner's to close."""
        self._dsn = dsn
        self._store = store
        self._sql = statements("outbox_rebuild")

    async def prepare(self, generation: Generation) -> None:
        """Make room in the store.

        Raises:
            VectorIndexUnavailableError: It is away, or another server prepared something all the time.
        """
        outbox = PostgresOutbox(self._dsn)
        deadline = monotonic() + STALLED_S
        try:
            while True:
                try:
                    await outbox.fill(generation, lambda: self._store.prepare(generation))
                except VectorIndexUnavailableError as error:
                    if error.reason != "VECTOR_INDEX_IN_PREPARATION" or monotonic() > deadline:
                        raise
                    await asyncio.sleep(_LOOK_S)
                else:
                    return
        finally:
            await outbox.aclose()

    async def rebuild(
        self, space_id: int, generation: Generation, *, anew: bool, tell: Callable[[int, int], Awaitable[None]]
    ) -> None:
        """Return once everything of the space is applied that waits now; with ``anew`` that is all there is.

        Raises:
            VectorIndexUnavailableError: The store is away, or has taken in nothing for a minute.
        """
        async with owner_connection(self._dsn) as connection:
            if anew:
                await connection.execute(self._sql["enqueue_space"], space_id, generation.number)
                await self._enqueue_strays(space_id, generation)
            await self._drained(connection, space_id, tell)

    async def retire(self, space_id: int, generation: Generation) -> None:
        """Have the store drop the generations of which there is nothing left in any space.

        Raises:
            VectorIndexUnavailableError: The store is away.
        """
        async with owner_connection(self._dsn) as connection:
            await self._drained(connection, space_id, _tell_nobody)
            # Nobody makes room for a generation while it is looked at.
            claims = statements("outbox")
            if not await connection.fetchval(claims["claim_filling"]):
                return
            for row in await connection.fetch(self._sql["unused"]):
                unused = Generation(row["model"], row["dimensions"])
                if unused.number != generation.number:
                    await self._store.drop(unused)
                    await connection.execute(self._sql["forget"], unused.number)
            await connection.fetchval(claims["release_filling"])

    async def _enqueue_strays(self, space_id: int, generation: Generation) -> None:
        outbox = PostgresOutbox(self._dsn)
        try:
            after = None
            while page := await self._store.scan(generation, space_id=space_id, after=after, limit=_SCANNED_AT_ONCE):
                await outbox.enqueue_strays(generation, page)
                after = page[-1].uid
        finally:
            await outbox.aclose()

    async def _drained(self, connection: Any, space_id: int, tell: Callable[[int, int], Awaitable[None]]) -> None:
        latest = await connection.fetchval(self._sql["latest"])
        total = left = await connection.fetchval(self._sql["waiting"], space_id, latest)
        seen = monotonic()
        while True:
            await tell(total - left, total)
            if not left:
                return
            await asyncio.sleep(_LOOK_S)
            now_left = min(left, await connection.fetchval(self._sql["waiting"], space_id, latest))
            if now_left < left:
                left, seen = now_left, monotonic()
            elif monotonic() - seen > STALLED_S:
                raise VectorIndexUnavailableError(
                    "The vector store has taken in nothing for a minute. See whether it answers, then call again: what "
                    "is done stays done.",
                    reason="VECTOR_INDEX_UNAVAILABLE",
                )


async def _tell_nobody(_done: int, _total: int) -> None:
    pass
