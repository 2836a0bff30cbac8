"""Embeds what was stored or changed while the embedding model was away, in the background and without being asked."""

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import asyncpg
import structlog
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from lorebank_server.domain.errors import EmbedderUnavailableError, StorageUnavailableError
from lorebank_server.domain.fingerprints import indexed_text
from lorebank_server.ports.embedder import OUTAGE, Embedder, Vector
from lorebank_server.ports.storage import WriteConflictError
from lorebank_server.postgres.connection import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S
from lorebank_server.postgres.failures import translated
from lorebank_server.postgres.rows import decode_draft
from lorebank_server.postgres.statements import statements

INTERVAL_S = 1.0
"""Pause between two looks, in seconds. A look into an empty table takes a fraction of a millisecond."""

PAGE = 64
"""Memories embedded and written together: a second or two of a local model's time, less than one request's worth."""

COMMAND_TIMEOUT_S = 30.0

_log = structlog.get_logger(__name__)


class EmbeddingBackfill:
    """Gives a vector to every memory that waits for one; one process at a time does the work of a generation.

    While a model is away it tries once in a while and waits. A text that the model refuses is tried ever less often
    and keeps nobody waiting behind it.
    """

    def __init__(self, dsn: str, embedders: Iterable[tuple[int, Embedder]]) -> None:
        """Connect as the owner of the schema, and embed for the spaces of these generations."""
        self._dsn = dsn
        self._embedders = tuple(embedders)
        self._sql = statements("embedding_backfill")

    async def run(self, *, interval_s: float = INTERVAL_S) -> None:
        """Look every ``interval_s`` until cancelled; outages are waited out."""
        connection: Any = None
        try:
            while True:
                try:
                    async with translated():
                        if connection is None:
                            connection = await self._connect()
                        await self.catch_up(connection)
                except (StorageUnavailableError, WriteConflictError):
                    # Also a connection that is silent rather than closed is not worth another try.
                    if connection is not None:
                        connection.terminate()
                    connection = None
                await asyncio.sleep(interval_s)
        finally:
            if connection is not None:
                connection.terminate()

    async def catch_up(self, connection: Any) -> int:
        """Embed what waits, page by page, until nothing does that can be; returns how many memories were.

        Ends early, without an error, when the models are away or other processes are at it.
        """
        return sum([await self._catch_up(connection, *generation) for generation in self._embedders])

    async def _catch_up(self, connection: Any, model: int, embedder: Embedder) -> int:
        if not await connection.fetch(self._sql["waiting"], model, 1, timeout=ANSWER_TIMEOUT_S):
            return 0
        if not await connection.fetchval(self._sql["claim"], model):
            return 0
        done = 0
        while written := await self._embed_page(connection, model, embedder):
            done += written
        # After an error the connection is closed, which gives up the claim too.
        await connection.fetchval(self._sql["yield"], model)
        if done:
            _log.info("embedded_late", memories=done)
        return done

    async def _embed_page(self, connection: Any, model: int, embedder: Embedder) -> int:
        rows = await connection.fetch(self._sql["waiting"], model, PAGE)
        texts = [indexed_text(decode_draft(row["body"]), row["create_time"]) for row in rows]
        vectors: Sequence[Vector | None]
        try:
            vectors = await embedder.embed_documents(texts)
        except EmbedderUnavailableError as error:
            if error.reason == OUTAGE:
                return 0
            vectors = [await self._embed_alone(connection, embedder, *pair) for pair in zip(rows, texts, strict=True)]
        embedded = [
            (row["memory"], row["revision"], sha256(text.encode()).digest(), HalfVector(vector))
            for row, text, vector in zip(rows, texts, vectors, strict=True)
            if vector is not None
        ]
        if not embedded:
            return 0
        columns = (list(column) for column in zip(*embedded, strict=True))
        return int(await connection.fetchval(self._sql["write"], model, *columns))

    async def _embed_alone(self, connection: Any, embedder: Embedder, row: Any, text: str) -> Vector | None:
        """The vector of one text of a page that the model would not take as a whole."""
        try:
            (vector,) = await embedder.embed_documents([text])
        except EmbedderUnavailableError as error:
            if error.reason != OUTAGE:
                await connection.execute(self._sql["postpone"], row["memory"])
            return None
        return vector

    async def _connect(self) -> Any:
        connection = await asyncpg.connect(self._dsn, timeout=CONNECT_TIMEOUT_S, command_timeout=COMMAND_TIMEOUT_S)
        try:
            await register_vector(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection
