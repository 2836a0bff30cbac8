"""Which model the stored vectors are of, and embedding everything anew with another."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from lorebank_server.domain.errors import LorebankError
from lorebank_server.domain.fingerprints import indexed_text
from lorebank_server.ports.embedder import Embedder
from lorebank_server.postgres.connection import owner_connection
from lorebank_server.postgres.rows import decode_draft
from lorebank_server.postgres.statements import statements

_PAGE = 256


class EmbeddingModelMismatchError(LorebankError):
    """The stored vectors are of another model than the one this server is set to."""


async def adopt_model(dsn: str, embedder: Embedder) -> int:
    """The number under which this model's vectors are kept, given out when it is new.

    Raises:
        EmbeddingModelMismatchError: There are vectors of another model.
    """
    async with owner_connection(dsn) as connection:
        others = await connection.fetch(statements("embedding_models")["others"], embedder.model, embedder.dimensions)
        if others:
            stored = ", ".join(f"{row['model']} ({row['dimensions']} dimensions)" for row in others)
            raise EmbeddingModelMismatchError(
                f"The stored vectors are of the model {stored}, but this server is set to {embedder.model} "
                f"({embedder.dimensions} dimensions), and vectors of two models cannot be compared. Two ways out: set "
                "the LOREBANK_EMBEDDING_* settings back to that model, or embed everything anew with "
                "'lorebank reindex' while no server runs on this data.",
                reason="EMBEDDING_MODEL_MISMATCH",
            )
        return await _number(connection, embedder)


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
        while rows := await connection.fetch(sql["outdated"], number, _PAGE):
            texts = [indexed_text(decode_draft(row["body"]), row["create_time"]) for row in rows]
            vectors = await embedder.embed_documents(texts)
            await connection.executemany(
                statements("writes")["embed"],
                [
                    (row["uid"], number, sha256(text.encode()).digest(), HalfVector(vector))
                    for row, text, vector in zip(rows, texts, vectors, strict=True)
                ],
            )
            done += len(rows)
            progress(done, total)
        return done


async def _number(connection: Any, embedder: Embedder) -> int:
    return int(await connection.fetchval(statements("embedding_models")["number"], embedder.model, embedder.dimensions))
