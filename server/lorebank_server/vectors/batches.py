"""From points to messages of a size that every server and proxy lets pass."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from qdrant_client import models

from lorebank_server.ports.vector_store import VectorPoint
from lorebank_server.vectors.payload import payload_of

MAX_BATCH_POINTS: Final = 256
"""Most points in one message."""

MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
"""About the largest message, in bytes: half of gRPC's default limit, which a proxy in between may have."""

_FIXED_BYTES: Final = 1024
"""Names of payload fields, numbers, times, the condition on the version, framing."""


def batches(points: Sequence[VectorPoint]) -> Iterator[list[VectorPoint]]:
    """Cut points, in their order, into batches within both limits; a point alone may exceed the second."""
    batch: list[VectorPoint] = []
    total = 0
    for point in points:
        size = _bytes(point)
        if batch and (len(batch) == MAX_BATCH_POINTS or total + size > MAX_BATCH_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(point)
        total += size
    if batch:
        yield batch


def point_struct(point: VectorPoint) -> models.PointStruct:
    """A point as the client takes it."""
    vector = np.asarray(point.vector, dtype=np.float32).tolist()
    return models.PointStruct(id=str(point.uid), vector=vector, payload=payload_of(point))


def _bytes(point: VectorPoint) -> int:
    texts = (
        *(point.subject, point.subject),  # as written and in lower case
        *(point.id, point.category, point.collection, point.agent, point.run, point.owner),
        *point.tags,
    )
    return 4 * len(point.vector) + sum(len(text.encode()) + 8 for text in texts) + _FIXED_BYTES
