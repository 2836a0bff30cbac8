"""Document frequencies: snapshots by bucket, rebuilt in the background and never by Store."""

import asyncio
from typing import Any

import asyncpg
import structlog

from lorebank_server.domain.errors import StorageUnavailableError
from lorebank_server.ports.storage import WriteConflictError
from lorebank_server.postgres.connection import ANSWER_TIMEOUT_S
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.statements import statements

REFRESH_INTERVAL_S = 5.0
ANSWERS_SWEPT_EVERY = 60

_log = structlog.get_logger(__name__)


class StatisticsRefresher:
    """Rebuilds the snapshots of buckets that changed by a tenth; a bucket gets one at 100 memories."""

    def __init__(self, dsn: str) -> None:
        """Connect as the owner of the schema: a snapshot covers what no single caller may read."""
        self._dsn = dsn

    async def run(self) -> None:
        """Look every five seconds until cancelled; an outage is waited out."""
        connection: Any = None
        rounds, seen = 0, -1
        try:
            while True:
                try:
                    async with translated():
                        if connection is None or connection.is_closed():
                            connection = await asyncpg.connect(self._dsn, timeout=10.0, command_timeout=600.0)
                        # What follows may take minutes, so a dead connection has to show before.
                        await connection.fetchval("select 1", timeout=ANSWER_TIMEOUT_S)
                        changes = await connection.fetchval(statements("statistics")["changes"])
                        if changes != seen:
                            await self.analyze(connection)
                            await self.refresh(connection)
                            seen = changes
                        if rounds % ANSWERS_SWEPT_EVERY == 0:
                            await connection.execute(statements("statistics")["sweep_answers"])
                        rounds += 1
                except (StorageUnavailableError, WriteConflictError):
                    _log.warning("statistics_delayed")
                    if connection is not None:
                        connection.terminate()
                await asyncio.sleep(REFRESH_INTERVAL_S)
        finally:
            if connection is not None:
                connection.terminate()

    @staticmethod
    async def analyze(connection: Any) -> bool:
        """Bring the planner's statistics up to date where they are behind; returns whether they were.

        Autovacuum would, but minutes after a bulk load, and until then recall scans whole buckets.
        """
        sql = statements("statistics")
        behind = bool(await connection.fetchval(sql["unanalyzed"]))
        if behind:
            await connection.execute(sql["analyze"])
        return behind

    @staticmethod
    async def refresh(connection: Any) -> int:
        """Rebuild every snapshot that is due, one transaction each; returns how many were."""
        sql = statements("statistics")
        rebuilt = 0
        for row in await connection.fetch(sql["due"]):
            async with connection.transaction():
                # Another replica may be at it: whoever holds the lock rebuilds, the others go on.
                if await connection.fetchval(sql["claim"], row["bucket_id"]):
                    await connection.execute(sql["drop_terms"], row["bucket_id"])
                    await connection.execute(sql["build_terms"], row["bucket_id"])
                    await connection.execute(sql["build_totals"], row["bucket_id"], row["space_id"])
                    rebuilt += 1
        return rebuilt
