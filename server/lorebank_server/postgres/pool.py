"""The connections to Postgres: how they are opened, and as whom they work."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import asyncpg
import structlog
from pgvector.asyncpg import register_vector

from lorebank_server.ports.deadline import share
from lorebank_server.postgres.connection import ANSWER_TIMEOUT_S, refusals_told

CALL_CONNECT_TIMEOUT_S = 5.0
"""Longest wait for a new connection, while calls wait for it or could use its place."""

COMMAND_TIMEOUT_S = 30.0
"""Longest wait for one command of a caller without a deadline; with one, the call is cancelled when that passes."""

CLEAN_UP_TIMEOUT_S = 1.0
"""How long a connection that was left in the middle of a command may take to be usable again."""

ACQUIRE_SHARE = 0.5
"""Part of the caller's time that may pass before there is a connection, and of the rest until it first answers: so
there is time to say that Postgres is away."""

APPLICATION_ROLE = "lorebank_app"

SERVER_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "application_name": "lorebank",
        "jit": "off",
        "random_page_cost": "1.1",  # what is searched is in memory, or on flash
        "timezone": "UTC",
        # What Postgres does when it is this server that went away without a word. A transaction left open would keep
        # its locks, and every writer that waits for them.
        "statement_timeout": f"{COMMAND_TIMEOUT_S:.0f}s",
        "idle_in_transaction_session_timeout": "10s",
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_keepalives_count": "3",
    }
)

_log = structlog.get_logger(__name__)


class Lease:
    """A connection of a pool in the hands of one task."""

    def __init__(self, pool: "ConnectionPool", *, timeout_s: float) -> None:
        self.connection: Any = None
        self._pool = pool
        self._timeout_s = timeout_s
        self._transaction: Any = None

    async def take(self) -> None:
        """Wait for a connection.

        Raises:
            TimeoutError: None was free in time.
        """
        self.connection = await self._pool.take(timeout_s=self._timeout_s)

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """Leave the connection to others for the length of the block, and take one again when it ends without error.

        Raises:
            TimeoutError: As for ``take``.
        """
        await self.clean_up()
        yield
        await self.take()

    async def ask(self, query: str, *arguments: Any) -> Any:
        """One row of a query that is answered without work, or None.

        Raises:
            TimeoutError: It was not. After the full time this connection and all that are as old are given up.
        """
        timeout_s = share(ACQUIRE_SHARE, most_s=ANSWER_TIMEOUT_S)
        try:
            return await self.connection.fetchrow(query, *arguments, timeout=timeout_s)
        except TimeoutError:
            if timeout_s == ANSWER_TIMEOUT_S:
                self._pool.distrust(self.connection)
            raise

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction, committed when the block ends without an error; otherwise giving the lease back undoes it."""
        self._transaction = self.connection.transaction()
        await self._transaction.start()
        yield
        await self._transaction.commit()
        self._transaction = None

    async def clean_up(self) -> None:
        """Undo what was begun and give the connection back, or close it if that does not work."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        try:
            if self._transaction is not None:
                async with asyncio.timeout(CLEAN_UP_TIMEOUT_S):
                    await self._transaction.rollback()
            await self._pool.give_back(connection)
        except TimeoutError:
            self._pool.distrust(connection)
        except BaseException as error:
            # Whatever the driver has against this connection, it has not against a new one.
            self._pool.discard(connection)
            if not isinstance(error, Exception):
                raise


class ConnectionPool:
    """A pool of connections that knows how many tasks wait for one, and which connections to trust.

    A connection that died without a word looks alive until it is used. Once one is found dead, every idle one that
    was opened before is closed instead of handed out.

    Attributes:
        waiting: Tasks that have asked for a connection and not got it.
        trusted: Process ids, in Postgres, of the connections that may be handed out.
    """

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", trusted: set[int]) -> None:
        """Wrap the driver's pool, whose ``init`` adds the process id of each new connection to ``trusted``."""
        self.waiting = 0
        self.trusted = trusted
        self._pool = pool
        self._cleaning: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def acquire(self, *, timeout: float) -> AsyncIterator[Any]:  # noqa: ASYNC109 - the driver's own deadline
        """A connection for the length of the block.

        Raises:
            TimeoutError: None was free within ``timeout`` seconds.
        """
        async with self.lease(timeout_s=timeout) as lease:
            yield lease.connection

    @asynccontextmanager
    async def lease(self, *, timeout_s: float) -> AsyncIterator[Lease]:
        """A connection for the length of the block, with what one can do with it as a whole.

        A block that ends because time is up ends at once: what it left on the connection is undone afterwards.

        Raises:
            TimeoutError: None was free within ``timeout_s``, or within the part of the caller's own time.
        """
        lease = Lease(self, timeout_s=timeout_s)
        await lease.take()
        try:
            yield lease
        except (TimeoutError, asyncio.CancelledError):
            task = asyncio.create_task(lease.clean_up())
            self._cleaning.add(task)
            task.add_done_callback(self._cleaning.discard)
            raise
        except BaseException:
            await lease.clean_up()
            raise
        await lease.clean_up()

    async def take(self, *, timeout_s: float) -> Any:
        """A connection that nobody else has, and whose taker gives it back.

        Raises:
            TimeoutError: None was free within ``timeout_s``, or within the part of the caller's own time.
        """
        self.waiting += 1
        try:
            async with asyncio.timeout(share(ACQUIRE_SHARE, most_s=timeout_s)):
                while True:
                    connection = await self._pool.acquire()
                    if connection.get_server_pid() in self.trusted:
                        return connection
                    connection.terminate()
        finally:
            self.waiting -= 1

    async def give_back(self, connection: Any) -> None:
        """Hand a connection to the next who asks.

        Raises:
            TimeoutError: It was left in the middle of a command that does not end; it is closed now.
        """
        await self._pool.release(connection, timeout=CLEAN_UP_TIMEOUT_S)

    def distrust(self, connection: Any) -> None:
        """Close a connection that does not answer, and every older one before it is used again."""
        _log.warning("connection_dead", meaning="Postgres did not answer on it; older ones are replaced")
        self.trusted.clear()
        self.discard(connection)

    @staticmethod
    def discard(connection: Any) -> None:
        """Close a connection without a word; one that the driver gave up already stays as it is."""
        with contextlib.suppress(asyncpg.InterfaceError):
            connection.terminate()

    def get_size(self) -> int:
        """Connections that are open."""
        return int(self._pool.get_size())

    def get_idle_size(self) -> int:
        """Open connections that nobody uses."""
        return int(self._pool.get_idle_size())

    def get_max_size(self) -> int:
        """Most connections that it opens."""
        return int(self._pool.get_max_size())

    async def close(self) -> None:
        """Wait for every connection to be given back, then close them all."""
        await self._pool.close()

    def terminate(self) -> None:
        """Close every connection at once."""
        self._pool.terminate()


async def open_pool(dsn: str, *, size: int, beside: ConnectionPool | None = None) -> ConnectionPool:
    """A pool whose connections work as the application role, under row-level security.

    A command that takes more than 30 seconds is cancelled. What is found dead in one pool closes old connections in the
    one ``beside`` it too, which leads to the same database.

    Raises:
        StorageUnavailableError: Postgres is away.
        DatabaseRefusedError: The role may not work as the application role.
    """
    trusted: set[int] = set() if beside is None else beside.trusted

    async def prepare(connection: Any) -> None:
        await register_vector(connection)
        await connection.execute(f"set role {APPLICATION_ROLE}")
        trusted.add(connection.get_server_pid())

    async with refusals_told():
        pool = await asyncpg.create_pool(
            dsn,
            min_size=min(2, size),
            max_size=size,
            timeout=CALL_CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
            init=prepare,
            reset=_keep_session,
            server_settings=dict(SERVER_SETTINGS),
        )
        return ConnectionPool(pool, trusted)


async def _keep_session(connection: Any) -> None:
    """Nothing to undo: every session sets its caller first, and what runs outside of one reads nothing by it."""
