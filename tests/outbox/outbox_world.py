"""A server with direct access to its database, its outbox and the store that it may search."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
from stored_points import StoreDouble

from lorebank import AsyncClient
from lorebank_server.operations.draining import Drainer
from lorebank_server.ports.backlog import Backlog
from lorebank_server.postgres.outbox import PostgresOutbox
from lorebank_server.serving import Running

DEADLINE_S = 20.0

_DIFFERENCES = """
select coalesce(e.memory, u.uid) as memory
from embeddings e full join unnest($1::uuid[], $2::bigint[]) u(uid, version) on u.uid = e.memory
where e.version is distinct from u.version
"""


async def eventually(condition: Callable[[], Awaitable[Any]], *, timeout_s: float = DEADLINE_S) -> Any:
    """What the condition gives once it holds."""
    async with asyncio.timeout(timeout_s):
        while not (value := await condition()):  # noqa: ASYNC110 - what other processes do sets no event of ours
            await asyncio.sleep(0.005)
    return value


@dataclass
class World:
    """A server on a database, with direct access to both, and to the store that it may search."""

    running: Running
    client: AsyncClient
    dsn: str
    connection: asyncpg.Connection
    store: StoreDouble
    stack: AsyncExitStack

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.running.port}"

    async def outbox(self, *, uncertain_for_s: float = 60.0) -> PostgresOutbox:
        """The outbox, switched on."""
        outbox = PostgresOutbox(self.dsn, uncertain_for_s=uncertain_for_s)
        await outbox.open()
        self.stack.push_async_callback(outbox.aclose)
        return outbox

    async def drain(self, store: StoreDouble | None = None, *, uncertain_for_s: float = 60.0) -> "Draining":
        """A drainer of its own, as another process would run."""
        drainer = Drainer(await self.outbox(uncertain_for_s=uncertain_for_s), store or self.store, backlog=Backlog())
        draining = Draining(drainer, asyncio.create_task(drainer.run()))
        self.stack.push_async_callback(draining.stop)
        return draining

    async def rows(self, *memories: str) -> list[asyncpg.Record]:
        """Rows of the outbox, of some memories or of all."""
        return await self.connection.fetch(
            "select o.* from outbox o where $1 or o.memory in (select uid from memories where id = any ($2))",
            not memories,
            list(memories),
        )

    async def waits(self) -> bool:
        return bool(await self.rows())

    async def uid(self, memory_id: str) -> UUID:
        return await self.connection.fetchval("select uid from memories where id = $1", memory_id)

    async def differences(self) -> list[UUID]:
        """Memories whose point is missing, orphaned or of another version."""
        versions = self.store.disk.versions
        rows = await self.connection.fetch(_DIFFERENCES, list(versions), list(versions.values()))
        return [row["memory"] for row in rows]

    async def settled(self) -> None:
        """Return once nothing waits; the store then holds what Postgres does."""

        async def empty() -> bool:
            return not await self.waits()

        await eventually(empty)
        assert [] == await self.differences()


@dataclass
class Draining:
    """A drainer that runs."""

    drainer: Drainer
    task: "asyncio.Task[None]"

    async def stop(self) -> None:
        """End it as a process's end would: no pass is finished."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


OpenWorld = Callable[..., AbstractAsyncContextManager[World]]
