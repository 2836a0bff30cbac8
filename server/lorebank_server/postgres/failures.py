"""Postgres's errors, translated at the adapter's edge."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from lorebank_server.domain.errors import AlreadyExistsError, StorageUnavailableError
from lorebank_server.ports.storage import IdTakenError, WriteConflictError

_ID_CONSTRAINTS = frozenset({"memories_id", "memories_pkey", "relations_pkey"})

_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a connection lost in the middle of a statement may raise
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DiskFullError,
    asyncpg.QueryCanceledError,  # it took as long as Postgres lets a statement take
    asyncpg.IdleInTransactionSessionTimeoutError,
)


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Raise domain errors in place of the driver's.

    Raises:
        StorageUnavailableError: Postgres is away, going down or out of room.
        AlreadyExistsError: A natural key is taken.
        IdTakenError: A freshly drawn id is taken.
        WriteConflictError: Postgres chose this transaction to resolve a deadlock, or what it refers to was deleted
            meanwhile; running it again says which.
    """
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name in _ID_CONSTRAINTS:
            raise IdTakenError from None
        if error.constraint_name == "memories_key":
            raise AlreadyExistsError(
                "The natural key is taken by another memory. Get the memory by that key and update it instead, or "
                "choose another key.",
                reason="KEY_TAKEN",
            ) from None
        raise
    except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.ForeignKeyViolationError):
        raise WriteConflictError from None
    except _AWAY as error:
        raise StorageUnavailableError(
            "The database does not answer for now. Try again shortly; under the same request_id nothing is written "
            "twice.",
            reason="STORAGE_UNAVAILABLE",
        ) from error
