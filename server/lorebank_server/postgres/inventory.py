"""All that Postgres holds of a space, read as the owner of the schema."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from lorebank_server.ports.inventory import KeptMemory, KeptVersion, SpaceFacts
from lorebank_server.ports.vector_store import Generation, StoredVersion
from lorebank_server.postgres.connection import owner_connection
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.rows import decode_draft
from lorebank_server.postgres.statements import statements

PAGE = 500

_STATEMENT_TIMEOUT_S = 600.0


class PostgresInventory:
    """Opens sessions on the database at ``dsn``, as the owner of the schema: no single caller may read all."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @asynccontextmanager
    async def session(self) -> AsyncIterator["PostgresInventorySession"]:
        """One connection that stays at its beginning, and one for the present and for repairs."""
        async with (
            owner_connection(self._dsn) as beginning,
            owner_connection(self._dsn) as present,
            translated(),
            beginning.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield PostgresInventorySession(beginning, present)


class PostgresInventorySession:
    """See ``InventorySession``."""

    def __init__(self, beginning: Any, present: Any) -> None:
        self._beginning = beginning
        self._present = present
        self._sql = statements("inventory")

    async def facts(self, space_id: int) -> SpaceFacts:
        """The space as the database stands now."""
        row = await self._present.fetchrow(self._sql["facts"], space_id)
        return SpaceFacts(
            generation=Generation(row["model"], row["dimensions"]) if row["model"] is not None else None,
            unembedded=row["unembedded"],
            pending=row["pending"],
            oldest_enqueue_time=row["oldest"],
            schema=row["schema"],
            postgres_version=row["postgres_version"],
        )

    async def spaces(self) -> frozenset[int]:
        """Numbers of all spaces there are now."""
        return frozenset(row["number"] for row in await self._present.fetch(self._sql["spaces"]))

    async def generations(self, space_id: int | None) -> list[Generation]:
        """What there are vectors of now, in one space or in all, in order of number."""
        rows = await self._present.fetch(self._sql["generations"], space_id)
        return [Generation(row["model"], row["dimensions"]) for row in rows]

    async def memories(self, space_id: int, generation: Generation) -> AsyncIterator[Sequence[KeptMemory]]:
        """Every memory as of the session's beginning, in pages, in no order."""
        async for page in self._pages("memories", space_id, generation.number):
            yield [
                KeptMemory(
                    row["uid"], decode_draft(row["body"]), row["create_time"], row["text_hash"], bool(row["aligned"])
                )
                for row in page
            ]

    async def versions(self, space_id: int, generation: Generation) -> AsyncIterator[Sequence[tuple[UUID, int]]]:
        """Every vector's memory and version as of the session's beginning, in pages, in order of uid."""
        async for page in self._pages("versions", space_id, generation.number):
            yield [(row["memory"], row["version"]) for row in page]

    async def current(self, generation: Generation, uids: Collection[UUID]) -> Mapping[UUID, KeptVersion]:
        """How these vectors stand now; complete."""
        rows = await self._present.fetch(self._sql["current"], generation.number, list(uids))
        return {row["memory"]: KeptVersion(row["version"], row["pending"]) for row in rows}

    async def strays(self, space_id: int) -> list[UUID]:
        """Vectors of the space in Postgres that belong to no memory."""
        return [row["memory"] for row in await self._present.fetch(self._sql["strays"], space_id)]

    async def await_embedding(self, uids: Collection[UUID]) -> None:
        """Have these memories embedded in the background."""
        await self._present.execute(self._sql["await_embedding"], list(uids))

    async def align(self, uids: Collection[UUID]) -> None:
        """Let the vectors of these memories be filtered by what the memories say."""
        await self._present.execute(self._sql["align"], list(uids))

    async def discard(self, uids: Collection[UUID]) -> None:
        """Delete the vectors of these memories from Postgres, unless there is such a memory."""
        await self._present.execute(self._sql["discard"], list(uids))

    async def renew(self, generation: Generation, uids: Collection[UUID], *, above: int) -> None:
        """Give these vectors a version higher than any so far and than ``above``, and so have them applied anew."""
        await self._present.execute(self._sql["advance"], above)
        await self._present.execute(self._sql["renew"], generation.number, list(uids))

    async def enqueue(self, points: Sequence[StoredVersion]) -> None:
        """Have these memories applied anew, whether or not they exist."""
        await self._present.execute(
            self._sql["enqueue"], [point.uid for point in points], [point.space_id for point in points]
        )

    async def _pages(self, name: str, *arguments: Any) -> AsyncIterator[list[Any]]:
        cursor = await self._beginning.cursor(self._sql[name], *arguments, timeout=_STATEMENT_TIMEOUT_S)
        while page := await cursor.fetch(PAGE):
            yield page
