"""Spaces and credentials on Postgres."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import asyncpg

from lorebank_server.domain.keys import ApiKey
from lorebank_server.domain.principal import Principal, Role
from lorebank_server.domain.space import Space, SpaceEmbedding
from lorebank_server.ports.administration import Credential
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.pool import ConnectionPool, Lease
from lorebank_server.postgres.rows import space_from
from lorebank_server.postgres.statements import statements
from lorebank_server.postgres.storage import ACQUIRE_TIMEOUT_S, caller_settings


class PostgresAdministration:
    """Spaces and keys, under row-level security like everything else."""

    def __init__(self, pool: ConnectionPool, *, embedding_model: int | None = None) -> None:
        """Work on ``pool``; new spaces are searched by vectors of ``embedding_model``."""
        self._pool = pool
        self._embedding_model = embedding_model
        self._sql = statements("administration")

    async def credential(self, key_id: str) -> Credential | None:
        """The key with this id, in whatever state; None when there is none."""
        async with self._lease() as lease:
            row = await lease.ask(self._sql["credential"], key_id)
        if row is None:
            return None
        principal = Principal(
            space_id=row["space_id"],
            space=row["space"],
            owner=row["owner"],
            role=Role(max(row["roles"])),
            project=row["project"],
            key_id=key_id,
        )
        return Credential(row["secret_hash"], principal, row["expire_time"], row["revoke_time"] is not None)

    async def open_space(self, space: str) -> int | None:
        """The number of ``space`` as long as no key was ever created anywhere; None afterwards."""
        async with self._lease() as lease:
            row = await lease.ask(self._sql["open_space"], space)
        return None if row is None else row[0]

    async def touch_keys(self, key_ids: Iterable[str], *, time: datetime) -> None:
        """Note that keys were used."""
        async with self._lease() as lease:
            await lease.connection.execute(self._sql["touch_keys"], list(key_ids), time)

    async def create_space(self, principal: Principal, space: Space, *, time: datetime) -> Space | None:
        """Write a space, whose number is ignored; None when its id is taken."""
        async with self._caller(principal) as connection:
            row = await connection.fetchrow(self._sql["create_space"], *_policies(space), time, self._embedding_model)
        return None if row is None else _space(row)

    async def space(self, principal: Principal, space_id: str) -> Space | None:
        """One space by its id."""
        async with self._caller(principal) as connection:
            row = await connection.fetchrow(self._sql["space"], space_id)
        return None if row is None else _space(row)

    async def list_spaces(self, principal: Principal, *, after: str, limit: int) -> list[Space]:
        """Spaces with an id above ``after``, in the order of their ids."""
        async with self._caller(principal) as connection:
            rows = await connection.fetch(self._sql["list_spaces"], after, limit)
        return [_space(row) for row in rows]

    async def update_space(self, principal: Principal, space: Space) -> bool:
        """Write a space's policies if its revision is still the one given, and count the revision on."""
        async with self._caller(principal) as connection:
            row = await connection.fetchrow(self._sql["update_space"], *_policies(space), space.number, space.revision)
        return row is not None

    async def space_contents(self, principal: Principal, space: Space) -> tuple[int, str]:
        """How many memories a space holds in all, and a digest that changes with any of them."""
        async with self._caller(principal) as connection:
            row = await connection.fetchrow(self._sql["space_contents"], space.number)
        return row["memories"], row["digest"]

    async def delete_space(self, principal: Principal, space: Space, *, digest: str) -> bool:
        """Delete a space with everything in it, beyond recovery, if its digest is still the one given."""
        async with self._caller(principal) as connection, connection.transaction():
            await connection.fetchrow(self._sql["lock_space"], space.number)
            row = await connection.fetchrow(self._sql["space_contents"], space.number)
            if row["digest"] != digest:
                return False
            await connection.execute(self._sql["delete_space"], space.number)
            return True

    async def create_key(self, principal: Principal, space: Space, key: ApiKey, *, secret_hash: bytes) -> bool:
        """Write a key; False when its id is taken."""
        async with self._caller(principal) as connection, connection.transaction():
            try:
                async with connection.transaction():
                    await connection.execute(
                        self._sql["create_key"],
                        key.id,
                        space.number,
                        secret_hash,
                        key.display_name,
                        key.owner,
                        [int(role) for role in key.roles],
                        key.project,
                        key.create_time,
                        key.expire_time,
                    )
            except asyncpg.UniqueViolationError:
                return False
            await connection.execute(self._sql["keys_now_exist"])
            return True

    async def list_keys(self, principal: Principal, space: Space, *, after: str, limit: int) -> list[ApiKey]:
        """Keys of a space with an id above ``after``, in the order of their ids; revoked ones too."""
        async with self._caller(principal) as connection:
            rows = await connection.fetch(self._sql["list_keys"], space.number, after, limit)
        return [_key(row) for row in rows]

    async def revoke_key(self, principal: Principal, space: Space, key_id: str, *, time: datetime) -> ApiKey | None:
        """Revoke a key, for good; a revoked one stays as it is. None when there is none."""
        async with self._caller(principal) as connection:
            row = await connection.fetchrow(self._sql["revoke_key"], space.number, key_id, time)
        return None if row is None else _key(row)

    @asynccontextmanager
    async def _lease(self) -> AsyncIterator[Lease]:
        async with translated(), self._pool.lease(timeout_s=ACQUIRE_TIMEOUT_S) as lease:
            yield lease

    @asynccontextmanager
    async def _caller(self, principal: Principal) -> AsyncIterator[Any]:
        async with self._lease() as lease:
            await lease.ask(statements("session")["set_caller"], *caller_settings(principal))
            yield lease.connection


def _space(row: Any) -> Space:
    space = space_from(row)
    if row["model"] is None:
        return space
    return replace(space, embedding=SpaceEmbedding(row["model"], row["dimensions"], row["embedding_generation"]))


def _policies(space: Space) -> tuple[Any, ...]:
    return (
        space.id,
        space.display_name,
        space.half_life_days,
        space.default_confidence,
        space.stale_threshold,
        space.quality_policy,
        space.language,
    )


def _key(row: Any) -> ApiKey:
    return ApiKey(
        id=row["id"],
        display_name=row["display_name"],
        owner=row["owner"],
        roles=tuple(Role(role) for role in row["roles"]),
        project=row["project"],
        create_time=row["create_time"],
        expire_time=row["expire_time"],
        last_used_time=row["last_used_time"],
        revoke_time=row["revoke_time"],
    )
