"""The outbox on Postgres: claims under advisory locks on one connection, and the overlay of a search."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from lorebank_server.domain.errors import StorageUnavailableError, VectorIndexUnavailableError
from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.outbox import Work
from lorebank_server.ports.storage import RecallPlan
from lorebank_server.ports.vector_store import Generation, StoredVersion, VectorPoint
from lorebank_server.postgres.connection import CONNECT_TIMEOUT_S, owner_connection
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.read_session import selection, standing_arguments
from lorebank_server.postgres.statements import statements
from lorebank_server.postgres.storage import ACQUIRE_TIMEOUT_S

UNCERTAIN_FOR_S = 60.0
"""For how long a write that was announced may take effect, unless its outcome is known."""

LEAST_DELAY_S = 0.2
MOST_DELAY_S = 30.0

_COMMAND_TIMEOUT_S = 30.0
_SWITCH_TIMEOUT_S = 600.0
_LOCK_TIMEOUT = "10s"

_SETTINGS = {
    "application_name": "lorebank-outbox",
    "jit": "off",
    "timezone": "UTC",
    # When this server vanishes, others get at the memories it has claimed within a minute.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}


class PostgresOutbox:
    """The outbox as its owner sees it, on a connection of its own that is opened when it is needed.

    Claims end with the connection, and so does the promise to other servers that the outbox is in use.
    """

    def __init__(self, dsn: str, *, uncertain_for_s: float = UNCERTAIN_FOR_S) -> None:
        """Connect as the owner of the schema; ``uncertain_for_s`` is how long a write may be under way."""
        self._dsn = dsn
        self._uncertain_for_s = uncertain_for_s
        self._connection: Any = None
        self._sql = statements("outbox")

    async def open(self) -> None:
        """See to it that every change is enqueued from now on, and everything that was not before."""
        async with translated():
            await self._connected()

    @asynccontextmanager
    async def claim(self, limit: int) -> AsyncIterator[Work]:
        """Up to ``limit`` memories that wait, for the length of the block."""
        async with translated():
            connection = await self._connected()
            rows = await connection.fetch(self._sql["claim"], limit, self._uncertain_for_s)
            claimed = [(row["sequence"], row["attempts"]) for row in rows if row["sequence"] is not None]
            columns = [list(column) for column in zip(*claimed, strict=True)]
            memories = list({row["memory"] for row in rows if row["sequence"] is not None})
            # Read after the locks were taken: whoever held them before has written what was there until then.
            work = await self._work(connection, memories) if memories else Work(0, {}, {})
        try:
            yield work
        except Exception:
            await self._release(connection, "postpone", rows, columns, LEAST_DELAY_S, MOST_DELAY_S)
            raise
        except BaseException:
            connection.terminate()
            raise
        await self._release(connection, "complete", rows, columns)

    async def generations(self) -> list[Generation]:
        """What the store keeps, or is about to, in order of number."""
        async with translated():
            connection = await self._connected()
            rows = await connection.fetch(self._sql["generations"])
        return [Generation(row["model"], row["dimensions"]) for row in rows]

    async def fill(self, generation: Generation, prepare: Callable[[], Awaitable[bool]]) -> None:
        """Have the store prepared; enqueue all of the generation if there was no room, or may have been none."""
        async with translated():
            connection = await self._connected()
            if not await connection.fetchval(self._sql["claim_filling"]):
                raise VectorIndexUnavailableError(
                    "Another server prepares the vector store.", reason="VECTOR_INDEX_IN_PREPARATION"
                )
            try:
                # Should this process die after the store made room, the next one finds it not filled.
                filled = await connection.fetchval(self._sql["begin_filling"], generation.number)
                created = await prepare()
                await connection.execute(
                    self._sql["finish_filling"], generation.number, created or not filled, timeout=_SWITCH_TIMEOUT_S
                )
            finally:
                if not connection.is_closed():
                    await connection.execute(self._sql["release_filling"])

    async def unswept(self) -> list[Generation]:
        """Generations of which the store may hold what Postgres does not."""
        async with translated():
            connection = await self._connected()
            rows = await connection.fetch(self._sql["generations"])
        return [Generation(row["model"], row["dimensions"]) for row in rows if not row["swept"]]

    async def enqueue_strays(self, generation: Generation, found: Sequence[StoredVersion]) -> int:
        """Enqueue those of ``found`` that Postgres has no vector of, and return how many they are."""
        async with translated():
            connection = await self._connected()
            inserted = await connection.execute(
                self._sql["enqueue_strays"],
                generation.number,
                [stored.uid for stored in found],
                [stored.space_id for stored in found],
            )
        return int(inserted.rpartition(" ")[2])

    async def finish_sweep(self, generation: Generation) -> None:
        """Note that the store holds nothing any more that is neither in Postgres nor enqueued."""
        async with translated():
            connection = await self._connected()
            await connection.execute(self._sql["finish_sweep"], generation.number)

    async def backlog(self) -> tuple[int, datetime | None]:
        """How many changes were never applied, and when the oldest of them was made."""
        async with translated():
            connection = await self._connected()
            row = await connection.fetchrow(self._sql["backlog"])
        return row["rows"], row["oldest"]

    async def aclose(self) -> None:
        """Release the connection and all claims."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = None
            connection = await asyncpg.connect(self._dsn, timeout=CONNECT_TIMEOUT_S, command_timeout=_COMMAND_TIMEOUT_S)
            try:
                await register_vector(connection)
                await connection.execute(self._sql["hold"])
                await _switch(connection, "enable")
            except BaseException:
                connection.terminate()
                raise
            self._connection = connection
        return self._connection

    async def _release(
        self, connection: Any, outcome: str, rows: Sequence[Any], columns: Sequence[Any], *more: Any
    ) -> None:
        """Note the outcome of a claim, and give its memories to others."""
        if rows:
            async with translated():
                if columns:
                    await connection.execute(self._sql[outcome], *columns, *more)
                await connection.execute(self._sql["release"], list({row["memory"] for row in rows}))

    async def _work(self, connection: Any, memories: Sequence[UUID]) -> Work:
        points: dict[Generation, list[VectorPoint]] = {}
        for row in await connection.fetch(self._sql["states"], memories):
            points.setdefault(Generation(row["model"], row["dimensions"]), []).append(_point(row))
        gone: dict[Generation, list[UUID]] = {}
        for row in await connection.fetch(self._sql["generations"]):
            generation = Generation(row["model"], row["dimensions"])
            there = {point.uid for point in points.get(generation, ())}
            if absent := [uid for uid in memories if uid not in there]:
                gone[generation] = absent
        return Work(len(memories), points, gone)


class PostgresPendingWrites:
    """The outbox as a search sees it, under the application's role."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._sql = statements("outbox")

    async def pending(
        self, plan: RecallPlan, vector: Vector, selector: Selector, *, now: datetime, limit: int
    ) -> dict[UUID, float | None]:
        """Every memory of the plan's buckets that waits, but at most the latest ``limit``."""
        where = *standing_arguments(selector, now), *selection(selector)
        async with translated(), self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            rows = await connection.fetch(
                self._sql["pending"],
                plan.space_id,
                list(plan.buckets),
                *where,
                HalfVector(vector),
                limit,
                plan.generation,
            )
        return {row["uid"]: row["similarity"] for row in rows}

    async def similarities(self, plan: RecallPlan, vector: Vector, uids: Sequence[UUID]) -> dict[UUID, float]:
        """Exact cosines of those of these memories that lie in the plan's buckets and have a vector."""
        if not uids:
            return {}
        async with translated(), self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            rows = await connection.fetch(
                self._sql["similarities"],
                plan.space_id,
                list(plan.buckets),
                plan.generation,
                HalfVector(vector),
                list(uids),
            )
        return {row["uid"]: row["similarity"] for row in rows}


async def disable_outbox(dsn: str) -> bool:
    """Enqueue nothing any more and forget what waits, unless a running server needs it; returns whether so.

    Raises:
        StorageUnavailableError: Postgres is away, or others kept the table busy for ten seconds.
    """
    async with owner_connection(dsn) as connection:
        return bool(await _switch(connection, "disable"))


async def _switch(connection: Any, name: str) -> Any:
    """Switch the outbox, giving up rather than holding up everyone who writes for longer than ten seconds."""
    try:
        await connection.execute(f"set lock_timeout = '{_LOCK_TIMEOUT}'")
        switched = await connection.fetchval(statements("outbox")[name], timeout=_SWITCH_TIMEOUT_S)
        await connection.execute("reset lock_timeout")
    except asyncpg.LockNotAvailableError as error:
        raise StorageUnavailableError(
            "Others keep the table of embeddings busy, perhaps building an index; try again shortly.",
            reason="STORAGE_UNAVAILABLE",
        ) from error
    return switched


def _point(row: Any) -> VectorPoint:
    return VectorPoint(
        uid=row["memory"],
        version=row["version"],
        vector=np.asarray(row["embedding"].to_numpy(), dtype=np.float32),
        space_id=row["space_id"],
        bucket_id=row["bucket_id"],
        id=row["id"],
        state=row["state"],
        stale_time=row["stale_time"],
        valid_until=row["valid_until"],
        kind=row["kind"],
        polarity=row["polarity"],
        category=row["category"],
        collection=row["collection"],
        subject=row["subject"],
        tags=tuple(row["tags"]),
        agent=row["agent"],
        run=row["run"],
        owner=row["owner"],
        create_time=row["create_time"],
    )
