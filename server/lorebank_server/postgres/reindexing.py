"""Moving a space to the vectors of another generation, as far as Postgres keeps them."""

import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import asyncpg
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from lorebank_server.domain.errors import AbortedError, NotFoundError, StorageUnavailableError
from lorebank_server.domain.fingerprints import indexed_text
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.reindexing import BareMemory, ReindexSession
from lorebank_server.ports.storage import WriteConflictError
from lorebank_server.postgres.connection import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.rows import decode_draft
from lorebank_server.postgres.statements import statements

_STATEMENT_TIMEOUT_S: Final = 600.0
_LOCK_TIMEOUT: Final = "5s"
# What holds a claim may be gone without a word, or in the middle of a statement; others must not wait for it.
_SERVER_SETTINGS: Final = {
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
_FIRST: Final = UUID(int=0)


class PostgresReindexing:
    """Opens sessions on connections of their own, as the owner of the schema."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @asynccontextmanager
    async def session(self, space_id: int, generation: int) -> AsyncIterator[ReindexSession]:
        """A session, which ends with its connection.

        Raises:
            AbortedError: There is another on this space.
        """
        async with translated():
            connection = await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=_STATEMENT_TIMEOUT_S,
                server_settings=_SERVER_SETTINGS,
            )
        try:
            async with translated():
                await register_vector(connection)
                claimed = await connection.fetchval(statements("reindexing")["claim"], space_id)
            if not claimed:
                raise AbortedError(
                    "Another reindexing of this space is under way; it goes on by itself. Wait until it ends, or end "
                    "it by cancelling its call.",
                    reason="REINDEXING_UNDER_WAY",
                )
            try:
                yield _Session(connection, space_id, generation)
            except Exception:
                await _release(connection, space_id)
                raise
            await _release(connection, space_id)
        finally:
            # For whoever was cancelled: what is under way is undone, and the claim ends with the connection.
            connection.terminate()


async def _release(connection: Any, space_id: int) -> None:
    """Give up the claim before the call ends, so that the next one finds it free."""
    with contextlib.suppress(StorageUnavailableError):
        async with translated():
            await connection.execute(statements("reindexing")["release"], space_id, timeout=ANSWER_TIMEOUT_S)


class _Session:
    def __init__(self, connection: Any, space_id: int, generation: int) -> None:
        self._connection = connection
        self._where = space_id, generation
        self._space_id = space_id
        self._sql = statements("reindexing")

    async def census(self) -> tuple[int, int]:
        """How many memories there are, and how many of them are bare."""
        async with translated():
            row = await self._connection.fetchrow(self._sql["census"], *self._where)
        return row["memories"], max(0, row["memories"] - row["embedded"])

    async def bare(self, after: BareMemory | None, limit: int, *, besides: Collection[UUID]) -> list[BareMemory]:
        """Up to ``limit`` bare memories, in order of creation and behind ``after``."""
        place = (after.create_time, after.uid) if after else (None, _FIRST)
        async with translated():
            rows = await self._connection.fetch(self._sql["bare"], *self._where, *place, list(besides), limit)
        return [
            BareMemory(
                uid=row["uid"],
                revision=row["revision"],
                create_time=row["create_time"],
                text=indexed_text(decode_draft(row["body"]), row["create_time"]),
            )
            for row in rows
        ]

    async def write(self, vectors: Mapping[BareMemory, Vector]) -> set[UUID]:
        """Keep vectors of memories that are still at that revision and that nobody is changing."""
        async with translated():
            rows = await self._connection.fetch(
                self._sql["write"],
                *self._where,
                [memory.uid for memory in vectors],
                [memory.revision for memory in vectors],
                [sha256(memory.text.encode()).digest() for memory in vectors],
                [HalfVector(vector) for vector in vectors.values()],
            )
        return {row["uid"] for row in rows}

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[None]:
        """A transaction in which nobody else gives the space a vector.

        Raises:
            WriteConflictError: Somebody held up this one for five seconds, and all who came later with it.
        """
        async with translated(), self._connection.transaction():
            await self._connection.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'")
            try:
                await self._connection.execute(self._sql["claim_generation"], self._space_id)
            except asyncpg.LockNotAvailableError:
                raise WriteConflictError from None
            yield

    async def switch(self, awaiting: Collection[UUID]) -> None:
        """Have the space searched by the generation from now on."""
        async with translated():
            switched = await self._connection.fetchval(self._sql["switch"], *self._where, list(awaiting))
        if switched is None:
            raise NotFoundError("The space was deleted meanwhile.", reason="SPACE_NOT_FOUND")

    async def count_former(self) -> int:
        """How many vectors there are of other generations."""
        async with translated():
            former = await self._former_generations()
            return int(await self._connection.fetchval(self._sql["count_former"], self._space_id, former))

    async def remove_former(self, limit: int) -> int:
        """Remove up to ``limit`` of these; returns how many."""
        async with translated():
            former = await self._former_generations()
            return int(await self._connection.fetchval(self._sql["remove_former"], self._space_id, former, limit))

    async def _former_generations(self) -> list[int]:
        return list(await self._connection.fetchval(self._sql["former_generations"], self._space_id))
