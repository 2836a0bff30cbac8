"""Puts points into Postgres, as the memories and embeddings that they would be copies of."""

from collections.abc import Sequence
from dataclasses import replace

import asyncpg
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from lorebank_server.ports.vector_store import VectorPoint

_SPACE = """
insert into spaces (
    id, default_confidence, stale_threshold, quality_policy, language, create_time, embedding_model
)
values ('second', 0.8, 0.25, 'bayes-v2', 'english', now(), $1)
"""

_BUCKETS = """
insert into buckets (id, space_id, scope, owner, project) overriding system value
select b.id, b.space_id, 3, '', 'p' || b.id from unnest($1::bigint[], $2::int[]) b(id, space_id)
on conflict do nothing
"""

_MEMORY = """
insert into memories (
    uid, space_id, bucket_id, id, key_namespace, owner, state, revision, body, kind, polarity, category, collection,
    subject, tags, agent, run, conversation, content_hash, lexemes, length, reputation, reference_time, stale_time,
    valid_until, create_time, update_time
)
values (
    $1, $2, $3, $4, '', $5, $6, 1, '{}', $7, $8, $9, $10, $11, $12, $13, $14, '', '\\x00', '', 0, 0.7, $15,
    coalesce($16::timestamptz, 'infinity'), coalesce($17::timestamptz, 'infinity'), $15, $15
)
"""

_EMBEDDING = """
insert into embeddings (memory, space_id, model, text_hash, embedding, bucket_id, found_until)
select m.uid, m.space_id, $2, '\\x00', $3, m.bucket_id, found_until(m.state, m.stale_time, m.valid_until)
from memories m
where m.uid = $1
"""


def apart(points: Sequence[VectorPoint]) -> list[VectorPoint]:
    """The points with buckets that belong to one space each, as they do in Postgres."""
    return [replace(point, bucket_id=bucket(point.space_id, point.bucket_id)) for point in points]


def bucket(space_id: int, bucket_id: int) -> int:
    return 100 * space_id + bucket_id


async def connect(dsn: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(dsn)
    await register_vector(connection)
    return connection


async def open_spaces(connection: asyncpg.Connection, dimensions: int) -> int:
    """Add the second space, and return the number of the model that both are searched by."""
    model = await connection.fetchval(
        "insert into embedding_models (model, dimensions) values ('tiny', $1) returning number", dimensions
    )
    await connection.execute("update spaces set embedding_model = $1", model)
    await connection.execute(_SPACE, model)
    return model


async def write(connection: asyncpg.Connection, model: int, points: Sequence[VectorPoint]) -> None:
    """Write memories in place of those of the same uid."""
    places = sorted({(point.bucket_id, point.space_id) for point in points})
    await connection.execute(_BUCKETS, *(list(column) for column in zip(*places, strict=True)))
    await remove(connection, points)
    await connection.executemany(_MEMORY, [_row(point) for point in points])
    await connection.executemany(_EMBEDDING, [(point.uid, model, HalfVector(point.vector)) for point in points])


async def remove(connection: asyncpg.Connection, points: Sequence[VectorPoint]) -> None:
    await connection.execute("delete from memories where uid = any ($1)", [point.uid for point in points])


def _row(point: VectorPoint) -> tuple:
    return (
        *(point.uid, point.space_id, point.bucket_id, point.id, point.owner, point.state, point.kind, point.polarity),
        *(point.category, point.collection, point.subject, list(point.tags), point.agent, point.run),
        *(point.create_time, point.stale_time, point.valid_until),
    )
