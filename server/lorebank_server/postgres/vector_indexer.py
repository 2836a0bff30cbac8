"""Approximate indexes for large spaces, built and kept up in the background and never by Store."""

import asyncio
from time import perf_counter
from typing import Any

import asyncpg
import structlog

from lorebank_server.domain.errors import StorageUnavailableError
from lorebank_server.ports.storage import WriteConflictError
from lorebank_server.postgres.connection import ANSWER_TIMEOUT_S
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.statements import statements

INTERVAL_S = 2.0
BUILD_FROM = 5_000
"""Vectors of a space from which on an index is quicker than reading all of them."""

MOST_WAITING = 1_000
"""Vectors that may wait outside, four times as many in a space of 32,000 and more; reading them takes a millisecond or
two."""

EXACT_UP_TO = 50_000
"""Vectors of a space that may be read one by one while its index is built anew, which takes a second for a thousand of
them at most; taking them in one by one takes ten."""

GATHERED_AT_ONCE = 10
"""Vectors taken in by one statement: some milliseconds each, during which nobody else can change those memories."""

MOST_BUILD_MEMORY_MB = 4096
"""Of Postgres's memory, while an index is built. One that does not fit, at about three million vectors of 384
dimensions, is finished on disk, which takes many times as long."""

_log = structlog.get_logger(__name__)


class VectorIndexer:
    """Gives each large space an HNSW index of its own, and takes in what was stored since.

    A build neither blocks writers nor readers; searches are exact until it is done. One process builds at a time,
    whichever of the replicas comes first.
    """

    def __init__(self, dsn: str) -> None:
        """Connect as the owner of the schema: an index is made for a whole space."""
        self._dsn = dsn
        self._seen = -1

    async def run(self) -> None:
        """Look every two seconds until cancelled; an outage is waited out."""
        connection: Any = None
        try:
            while True:
                try:
                    async with translated():
                        if connection is None or connection.is_closed():
                            connection = await asyncpg.connect(self._dsn, timeout=10.0)
                            self._seen = -1
                        # A build may take minutes, so a dead connection has to show before.
                        if await connection.fetchval(statements("vector_indexes")["claim"], timeout=ANSWER_TIMEOUT_S):
                            await self._look(connection)
                except (StorageUnavailableError, WriteConflictError):
                    _log.warning("vector_indexing_delayed")
                    if connection is not None:
                        connection.terminate()
                await asyncio.sleep(INTERVAL_S)
        finally:
            if connection is not None:
                connection.terminate()

    async def _look(self, connection: Any) -> None:
        sql = statements("vector_indexes")
        changes = await connection.fetchval(sql["changes"])
        if abs(changes - self._seen) >= MOST_WAITING // 2 or self._seen < 0 or await connection.fetchval(sql["due"]):
            await self.bring_up_to_date(connection)
            self._seen = changes

    @staticmethod
    async def bring_up_to_date(connection: Any) -> int:
        """Build what is due, take in what waits, and drop what nobody needs; returns how many indexes it touched."""
        sql = statements("vector_indexes")
        touched = 0
        for row in await connection.fetch(sql["strays"]):
            await connection.execute(f"drop index concurrently if exists {row['name']}")
            touched += 1
        for row in await connection.fetch(sql["census"]):
            if row["vectors"] < BUILD_FROM and not row["begun"]:
                continue
            vectors, waiting = row["vectors"], row["waiting"]
            too_many = waiting > max(MOST_WAITING, min(4 * MOST_WAITING, vectors // 8))
            if not row["ready"] or waiting > vectors / 2 or (too_many and waiting > vectors / 8 <= EXACT_UP_TO / 8):
                await _build(connection, row)
            elif too_many:
                await _take_in(connection, row)
            else:
                continue
            touched += 1
        return touched


async def _build(connection: Any, row: Any) -> None:
    sql = statements("vector_indexes")
    where = row["space_id"], row["model"]
    _log.info("vector_index_begun", space_number=row["space_id"], vectors=row["vectors"])
    await connection.execute(sql["begin_build"], *where)
    await connection.execute(f"drop index concurrently if exists {row['name']}")
    await _gather(connection, where, 10_000)
    await connection.execute(f"set maintenance_work_mem = '{_build_memory_mb(row['vectors'], row['dimensions'])}MB'")
    await connection.execute(
        f"create index concurrently {row['name']} on embeddings "
        f"using hnsw ((embedding::halfvec({row['dimensions']})) halfvec_cosine_ops) "
        f"where space_id = {row['space_id']} and model = {row['model']} and indexed"
    )
    await connection.execute(sql["finish_build"], *where, row["vectors"])
    _log.info("vector_index_ready", space_number=row["space_id"], vectors=row["vectors"])


def _build_memory_mb(vectors: int, dimensions: int) -> int:
    """What the graph takes: two bytes a dimension, the links of a vector, and a quarter for what comes meanwhile."""
    return min(MOST_BUILD_MEMORY_MB, 64 + vectors * (2 * dimensions + 600) * 5 // 4 // 2**20)


async def _take_in(connection: Any, row: Any) -> None:
    where = row["space_id"], row["model"]
    await _gather(connection, where, GATHERED_AT_ONCE)
    await connection.execute(statements("vector_indexes")["finish_build"], *where, row["vectors"])


async def _gather(connection: Any, where: tuple[int, int], at_once: int) -> None:
    """Move what waits into the index, if there is one, or to where the next build finds it."""
    while True:
        begin = perf_counter()
        moved = await connection.execute(statements("vector_indexes")["gather"], *where, at_once)
        if moved.endswith(" 0"):
            return
        # Half of a processor is left to those who wait for an answer.
        await asyncio.sleep(perf_counter() - begin)
