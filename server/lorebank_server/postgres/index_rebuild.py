"""Has the approximate index of a space in Postgres built anew, by whichever server looks after the indexes."""

import asyncio
from collections.abc import Awaitable, Callable

from lorebank_server.ports.vector_store import Generation
from lorebank_server.postgres import vector_indexer
from lorebank_server.postgres.connection import owner_connection
from lorebank_server.postgres.statements import statements

LOOK_S = 0.5


class PgvectorRebuild:
    """Asks for a build and waits for it; a space that is too small for an index is ready as it is."""

    def __init__(self, dsn: str) -> None:
        """Connect as the owner of the schema."""
        self._dsn = dsn
        self._sql = statements("vector_indexes")

    async def prepare(self, generation: Generation) -> None:
        """Do nothing: the table has room for any."""

    async def rebuild(
        self, space_id: int, generation: Generation, *, anew: bool, tell: Callable[[int, int], Awaitable[None]]
    ) -> None:
        """Return once the index is built; searches are exact until then."""
        where = space_id, generation.number
        async with owner_connection(self._dsn) as connection:
            await connection.execute(self._sql["request"], *where, vector_indexer.BUILD_FROM, anew)
            done = total = 0
            while True:
                row = await connection.fetchrow(self._sql["progress"], *where)
                total = max(total, row["vectors"])
                done = total if row["ready"] else max(done, min(row["built"], total - 1))
                await tell(done, total)
                if row["ready"]:
                    return
                await asyncio.sleep(LOOK_S)

    async def retire(self, space_id: int, generation: Generation) -> None:
        """Give up the indexes of the space's other generations."""
        async with owner_connection(self._dsn) as connection:
            await connection.execute(self._sql["discard"], space_id, generation.number)
