"""Sessions on Postgres: one caller each, under row-level security."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from lorebank_server.domain.errors import UnauthenticatedError
from lorebank_server.domain.principal import Principal
from lorebank_server.ports.storage import ReadSession, WriteSession
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.read_session import PostgresReadSession
from lorebank_server.postgres.rows import space_from
from lorebank_server.postgres.statements import statements
from lorebank_server.postgres.write_session import PostgresWriteSession

ACQUIRE_TIMEOUT_S = 10.0


async def set_caller(connection: Any, principal: Principal) -> Any:
    """Make the connection work for ``principal``, and return its space's row, or None when that is gone.

    The settings hold until the next caller's replace them; every session begins here.
    """
    return await connection.fetchrow(
        statements("session")["set_caller"],
        str(principal.space_id),
        principal.owner,
        principal.project,
        str(int(principal.role)),
        "on" if principal.is_operator else "off",
        principal.space_id,
    )


class PostgresStorage:
    """The truth, over a pool of connections."""

    def __init__(self, pool: Any, *, embedding_model: int, clock: Callable[[], datetime]) -> None:
        """Work on ``pool``; ``embedding_model`` is the number under which this server's vectors are kept."""
        self._pool = pool
        self._clock = clock
        self._embedding_model = embedding_model

    @asynccontextmanager
    async def reading(self, principal: Principal) -> AsyncIterator[ReadSession]:
        """A session for reads, each seeing the latest commit."""
        async with translated(), self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            space = space_from(await _own_space(connection, principal))
            yield PostgresReadSession(connection, principal, space, self._clock())

    @asynccontextmanager
    async def writing(self, principal: Principal) -> AsyncIterator[WriteSession]:
        """A session that is one transaction, committed when the block ends without an error."""
        async with translated(), self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            space = space_from(await _own_space(connection, principal))
            async with connection.transaction():
                yield PostgresWriteSession(
                    connection, principal, space, self._clock(), embedding_model=self._embedding_model
                )

    async def check(self) -> None:
        """Return when Postgres answers within two seconds."""
        async with translated(), self._pool.acquire(timeout=2.0) as connection:
            await connection.fetchval("select 1", timeout=2.0)


async def _own_space(connection: Any, principal: Principal) -> Any:
    row = await set_caller(connection, principal)
    if row is None:
        raise UnauthenticatedError(
            "The space of this credential was deleted. Ask the operator for a key of another space.",
            reason="SPACE_DELETED",
        )
    return row
