"""Which model the stored vectors are of, and embedding everything anew with another."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

import structlog
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from lorebank_server.domain.errors import LorebankError
from lorebank_server.domain.fingerprints import indexed_text
from lorebank_server.operations.embedders import label
from lorebank_server.ports.embedder import Embedder
from lorebank_server.postgres.connection import owner_connection
from lorebank_server.postgres.rows import decode_draft
from lorebank_server.postgres.statements import statements

_PAGE = 256

_log = structlog.get_logger(__name__)


class EmbeddingModelMismatchError(LorebankError):
    """The stored vectors are of another model than the one this server is set to."""


async def adopt_models(dsn: str, embedders: Sequence[Embedder]) -> list[int]:
    """The numbers under which the vectors of these models are kept, in their order, given out when they are new.

    Spaces without vectors are to be searched by the first of them from now on.

    Raises:
        EmbeddingModelMismatchError: There are spaces with vectors of another model.
    """
    async with owner_connection(dsn) as connection:
        sql = statements("embedding_models")
        numbers = [await _number(connection, embedder) for embedder in embedders]
        for row in await connection.fetch(sql["vacant"], numbers[0]):
            async with connection.transaction():
                await connection.execute(sql["claim"], row["number"])
                await connection.execute(sql["adopt"], row["number"], numbers[0])
        if others := await connection.fetch(sql["others"], numbers):
            stored = ", ".join(f"{row['model']} ({row['dimensions']} dimensions)" for row in others)
            known = " and ".join(label(embedder) for embedder in embedders)
            raise EmbeddingModelMismatchError(
                f"The stored vectors are of the model {stored}, but this server is set to {known}, and vectors of two "
                "models cannot be compared. Three ways out: set the LOREBANK_EMBEDDING_* settings back to that model; "
                "name it by the LOREBANK_NEXT_EMBEDDING_* settings, so that this server has both, and move each space "
                "with 'lorebank reindex --model NAME' while it serves; or embed everything anew with 'lorebank "
                "reindex --direct' while no server runs on this data.",
                reason="EMBEDDING_MODEL_MISMATCH",
            )
        for row in await connection.fetch(sql["elsewhere"], numbers[0]):
            _log.info(
                "spaces_of_another_model",
                spaces=row["spaces"],
                model=f"{row['model']} ({row['dimensions']} dimensions)",
                meaning=f"they stay with it until 'lorebank reindex --model {embedders[0].model}' moves each",
            )
        return numbers


async def reindex(dsn: str, embedder: Embedder, *, progress: Callable[[int, int], None]) -> int:
    """Embed every memory that has no vector of this model; safe to interrupt and to run again.

    Args:
        dsn: Connects as the owner of the schema.
        embedder: The model to embed with.
        progress: Called with the memories done and the total.

    Returns:
        How many memories were embedded.
    """
    async with owner_connection(dsn) as connection:
        await register_vector(connection)
        sql = statements("embedding_models")
        number = await _number(connection, embedder)
        total = await connection.fetchval(sql["count_outdated"], number)
        done = 0
        progress(done, total)
        last = UUID(int=0)
        while rows := await connection.fetch(sql["outdated"], number, last, _PAGE):
            texts = [indexed_text(decode_draft(row["body"]), row["create_time"]) for row in rows]
            vectors = await embedder.embed_documents(texts)
            await connection.executemany(
                sql["embed"],
                [
                    (row["uid"], number, sha256(text.encode()).digest(), HalfVector(vector))
                    for row, text, vector in zip(rows, texts, vectors, strict=True)
                ],
            )
            last = rows[-1]["uid"]
            done += len(rows)
            progress(done, total)
        await connection.execute(sql["switch"], number)
        return done


async def _number(connection: Any, embedder: Embedder) -> int:
    sql = statements("embedding_models")
    # Looked for first: what is inserted in vain uses up a number too, at every start of a server.
    while (number := await connection.fetchval(sql["number"], embedder.model, embedder.dimensions)) is None:
        await connection.execute(sql["add"], embedder.model, embedder.dimensions)
    return int(number)
