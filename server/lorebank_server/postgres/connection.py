"""Connecting to Postgres at start, when what goes wrong is told to the operator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from lorebank_server.domain.errors import LorebankError
from lorebank_server.postgres.failures import translated

CONNECT_TIMEOUT_S = 10.0

ANSWER_TIMEOUT_S = 2.0
"""Longest wait for what Postgres answers without work. A connection on which it takes longer is dead: a firewall
dropped it, or the machine at the other end went away without a word."""

_REFUSALS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


class DatabaseRefusedError(LorebankError):
    """Postgres answers, but not to this role, or not for what a server has to do."""


@asynccontextmanager
async def owner_connection(dsn: str) -> AsyncIterator[Any]:
    """A connection of its own, as the role that owns the schema.

    Raises:
        StorageUnavailableError: Postgres is away.
        DatabaseRefusedError: See ``refusals_told``.
    """
    async with refusals_told():
        connection = await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT_S)
        try:
            yield connection
        finally:
            await connection.close()


@asynccontextmanager
async def refusals_told() -> AsyncIterator[None]:
    """Raise domain errors in place of the driver's, those included that trying again would not cure.

    Raises:
        StorageUnavailableError: Postgres is away.
        DatabaseRefusedError: There is no such role or database, or the role lacks a right; the message says which.
    """
    try:
        async with translated():
            yield
    except _REFUSALS as error:
        raise DatabaseRefusedError(
            f"Postgres refuses what LOREBANK_DATABASE_URL asks for: {error.args[0]}. Its role must own the database, "
            "and either may create roles or is a member of the role lorebank_app.",
            reason="DATABASE_REFUSED",
        ) from error
