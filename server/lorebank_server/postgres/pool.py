"""The connections to Postgres: how they are opened, and as whom they work."""

from typing import Any

import asyncpg
from pgvector.asyncpg import register_vector

from lorebank_server.postgres.connection import CONNECT_TIMEOUT_S, refusals_told

COMMAND_TIMEOUT_S = 30.0
APPLICATION_ROLE = "lorebank_app"


async def open_pool(dsn: str, *, size: int) -> "asyncpg.Pool[asyncpg.Record]":
    """A pool whose connections work as the application role, under row-level security.

    A command that takes more than 30 seconds is cancelled.

    Raises:
        StorageUnavailableError: Postgres is away.
        DatabaseRefusedError: The role may not work as the application role.
    """
    async with refusals_told():
        return await asyncpg.create_pool(
            dsn,
            min_size=min(2, size),
            max_size=size,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
            init=_prepare_connection,
            reset=_keep_session,
            server_settings={
                "application_name": "lorebank",
                "jit": "off",
                "random_page_cost": "1.1",  # what is searched is in memory, or on flash
                "timezone": "UTC",
            },
        )


async def _prepare_connection(connection: Any) -> None:
    await register_vector(connection)
    await connection.execute(f"set role {APPLICATION_ROLE}")


async def _keep_session(connection: Any) -> None:
    """Nothing to undo: every session sets its caller first, and what runs outside of one reads nothing by it."""
