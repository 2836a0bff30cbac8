"""Sessions on Postgres: one caller each, under row-level security."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from lorebank_server.domain.errors import UnauthenticatedError
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.space import Space
from lorebank_server.ports.storage import ReadSession, WriteSession
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.pool import ConnectionPool, Lease
from lorebank_server.postgres.read_session import PostgresReadSession
from lorebank_server.postgres.rows import space_from
from lorebank_server.postgres.statements import statements
from lorebank_server.postgres.write_session import PostgresWriteSession

ACQUIRE_TIMEOUT_S = 5.0
"""Longest wait for a connection of a caller without a deadline: many times what a busy server needs to free one."""

CHECK_TIMEOUT_S = 2.0


async def set_caller(connection: Any, principal: Principal) -> Any:
    """Make the connection work for ``principal``, and return its space's row, or None when that is gone.

    The settings hold until the next caller's replace them; every session begins here.
    """
    return await connection.fetchrow(statements("session")["set_caller"], *caller_settings(principal))


def caller_settings(principal: Principal) -> tuple[Any, ...]:
    """What the statement ``set_caller`` is given."""
    return (
        str(principal.space_id),
        principal.owner,
        principal.project,
        str(int(principal.role)),
        "on" if principal.is_operator else "off",
        principal.space_id,
    )


class PostgresStorage:
    """The truth, over a pool of connections."""

    def __init__(self, pool: ConnectionPool, *, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    @asynccontextmanager
    async def reading(self, principal: Principal, *, now: datetime | None = None) -> AsyncIterator[ReadSession]:
        """A session for reads, each seeing the latest commit; quality is taken at ``now``, or when it begins."""
        async with translated(), self._pool.lease(timeout_s=ACQUIRE_TIMEOUT_S) as lease:
            space = space_from(await _own_space(lease, principal))
            yield _LeasedReadSession(lease, principal, space, now or self._clock())

    @asynccontextmanager
    async def writing(self, principal: Principal) -> AsyncIterator[WriteSession]:
        """A session that is one transaction, committed when the block ends without an error."""
        async with translated(), self._pool.lease(timeout_s=ACQUIRE_TIMEOUT_S) as lease:
            space = space_from(await _own_space(lease, principal))
            async with lease.transaction():
                yield PostgresWriteSession(lease.connection, principal, space, self._clock())

    async def check(self) -> None:
        """Return when Postgres answers within two seconds, on a connection that was free within two."""
        async with translated(), self._pool.lease(timeout_s=CHECK_TIMEOUT_S) as lease:
            await lease.ask("select 1")


class _LeasedReadSession(PostgresReadSession):
    """A session whose connection others may use while it waits for something else."""

    def __init__(self, lease: Lease, principal: Principal, space: Space, now: datetime) -> None:
        super().__init__(lease.connection, principal, space, now)
        self._lease = lease

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """Give the connection back for the length of the block, and go on with another one."""
        async with self._lease.resting():
            yield
        await _own_space(self._lease, self._principal)
        self._connection = self._lease.connection


async def _own_space(lease: Lease, principal: Principal) -> Any:
    row = await lease.ask(statements("session")["set_caller"], *caller_settings(principal))
    if row is None:
        raise UnauthenticatedError(
            "The space of this credential was deleted. Ask the operator for a key of another space.",
            reason="SPACE_DELETED",
        )
    return row
