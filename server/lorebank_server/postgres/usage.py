"""Counts reading as use: noted in memory, written in batches off the request path."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from lorebank_server.domain.errors import StorageUnavailableError
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.statements import statements

FLUSH_INTERVAL_S = 0.5
WRITE_TIMEOUT_S = 5.0
_MAX_PENDING = 100_000

_log = structlog.get_logger(__name__)


class PostgresUsageRecorder:
    """Coalesces uses by memory; a graceful stop loses none, a kill at most those of the last half second."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._pending: dict[UUID, tuple[int, int, datetime]] = {}
        self._writing = asyncio.Lock()

    def note(self, space_id: int, memories: Iterable[UUID], *, time: datetime) -> None:
        """Count one use of each memory; returns at once."""
        for memory in memories:
            _, count, _ = self._pending.get(memory, (space_id, 0, time))
            if count or len(self._pending) < _MAX_PENDING:
                self._pending[memory] = (space_id, count + 1, time)

    async def run(self) -> None:
        """Write what is pending, twice a second, until cancelled; then once more."""
        try:
            while True:
                await asyncio.sleep(FLUSH_INTERVAL_S)
                # A stop in the middle lets the write finish; the last flush below waits for it.
                await asyncio.shield(asyncio.create_task(self._flush_or_keep()))
        finally:
            await self._flush_or_keep()

    async def flush(self) -> None:
        """Write what is pending; returns when everything noted before is written, by this call or another."""
        async with self._writing:
            await self._write_pending()

    async def _write_pending(self) -> None:
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        rows = sorted(pending.items(), key=lambda entry: entry[0])
        try:
            async with translated(), self._pool.acquire(timeout=WRITE_TIMEOUT_S) as connection:
                await connection.execute(
                    statements("usage")["record"],
                    [memory for memory, _ in rows],
                    [space_id for _, (space_id, _, _) in rows],
                    [count for _, (_, count, _) in rows],
                    [time for _, (_, _, time) in rows],
                    timeout=WRITE_TIMEOUT_S,
                )
        except StorageUnavailableError:
            for memory, (space_id, count, time) in rows:
                _, later, _ = self._pending.get(memory, (space_id, 0, time))
                self._pending[memory] = (space_id, count + later, time)
            raise

    async def _flush_or_keep(self) -> None:
        try:
            await self.flush()
        except StorageUnavailableError:
            _log.warning("usage_kept", memories=len(self._pending))
