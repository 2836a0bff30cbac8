"""The vector store on a Qdrant server or cluster, over gRPC."""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final, Self
from uuid import UUID

import numpy as np
from qdrant_client import AsyncQdrantClient, models

from lorebank_server.domain.errors import VectorIndexUnavailableError
from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.vector_store import Generation, StoredVersion, VectorPoint
from lorebank_server.vectors import payload
from lorebank_server.vectors.batches import MAX_BATCH_POINTS, batches, point_struct
from lorebank_server.vectors.collection import check_vectors, creation
from lorebank_server.vectors.connection import open_client
from lorebank_server.vectors.failures import NOT_PREPARED, UNAVAILABLE, translated, unavailable
from lorebank_server.vectors.spec import QdrantSpec

_MAX_UUID: Final = UUID(int=2**128 - 1)
_CONDITIONAL_UPSERT_SINCE: Final = (1, 16)
_SILENT_S: Final = 0.5
"""After so long without an answer, a call that its caller gave up says that the connection may be dead."""


class QdrantStore:
    """Points in one collection a generation, each space apart in it as a tenant.

    Similarities are left to Postgres: Qdrant's are float32, and approximate under quantisation, where Postgres
    computes one number for every backend.
    """

    def __init__(
        self, client: AsyncQdrantClient, spec: QdrantSpec, *, reopen: Callable[[], AsyncQdrantClient] | None = None
    ) -> None:
        """Take over a client, which ``aclose`` closes.

        With ``reopen``, a client whose calls are not answered is replaced: its connection may be dead without a word,
        and gRPC would keep to it for as long as it is not told so.
        """
        self._client = client
        self._spec = spec
        self._reopen = reopen
        self._conditional_upsert: bool | None = None
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()

    @classmethod
    def connect(cls, spec: QdrantSpec) -> Self:
        """Open a store on the server that a spec names; the connection is made by the first call.

        Raises:
            VectorIndexUnavailableError: The address, the key or the file of certificates cannot be used.
        """
        return cls(open_client(spec), spec, reopen=partial(open_client, spec))

    async def prepare(self, generation: Generation) -> bool:
        """Make the collection and what indexes are missing; returns whether it has to be filled.

        That is as long as it holds no point, or one written when there were fewer payload fields.

        Raises:
            VectorIndexUnavailableError: Qdrant is away; or the collection has vectors of another kind.
        """
        name = self._name(generation)
        if not await self._exists(name):
            try:
                async with self._call(self._spec.write_timeout_s) as client:
                    await client.create_collection(name, **creation(generation, self._spec))
            except VectorIndexUnavailableError:
                # Another server may have made it meanwhile.
                if not await self._exists(name):
                    raise
        async with self._call(self._spec.write_timeout_s) as client:
            description = await client.get_collection(name)
        check_vectors(description, generation)
        for field in payload.FIELDS:
            if field.name not in description.payload_schema:
                async with self._call(self._spec.write_timeout_s) as client:
                    await client.create_payload_index(name, field.name, field.index, wait=True)
        return not await self._has_any(name, None) or await self._has_any(name, payload.incomplete())

    async def search(
        self,
        generation: Generation,
        space_id: int,
        buckets: Sequence[int],
        vector: Vector,
        selector: Selector,
        *,
        now: datetime,
        limit: int,
    ) -> dict[UUID, float | None]:
        """The ``limit`` nearest, nearest first, without their similarities.

        Raises:
            VectorIndexUnavailableError: Qdrant is away or lacks the collection.
        """
        if not buckets or not selector.states or limit < 1:
            return {}
        # Postgres compares in half precision, so both backends draw the line at the same memory.
        rounded = vector.astype(np.float16).astype(np.float32)
        async with self._call(self._spec.timeout_s) as client:
            found = await client.query_points(
                self._name(generation),
                query=rounded.tolist(),
                query_filter=payload.matching(payload.Wanted(space_id, buckets, selector, now)),
                search_params=self._search_params(),
                limit=limit,
                with_payload=False,
                timeout=math.ceil(self._spec.timeout_s),
            )
        return {UUID(str(point.id)): None for point in found.points}

    async def upsert(self, generation: Generation, points: Sequence[VectorPoint]) -> None:
        """Write points in batches, each waited for; from Qdrant 1.16 on none over a later version of itself.

        Raises:
            VectorIndexUnavailableError: Qdrant is away, lacks the collection or refuses a point; batches before the
                one that failed are written.
        """
        name = self._name(generation)
        for batch in batches(points):
            fence = payload.not_newer(batch) if await self._upserts_conditionally() else None
            async with self._call(self._spec.write_timeout_s) as client:
                result = await client.upsert(
                    name,
                    points=[point_struct(point) for point in batch],
                    wait=True,
                    ordering=models.WriteOrdering.MEDIUM,
                    update_filter=fence,
                )
            _check_completed(result)

    async def delete(self, generation: Generation, uids: Sequence[UUID]) -> None:
        """Remove points by their ids, each batch waited for.

        Raises:
            VectorIndexUnavailableError: Qdrant is away.
        """
        for start in range(0, len(uids), MAX_BATCH_POINTS):
            ids: list[models.ExtendedPointId] = [str(uid) for uid in uids[start : start + MAX_BATCH_POINTS]]
            try:
                async with self._call(self._spec.write_timeout_s) as client:
                    result = await client.delete(
                        self._name(generation),
                        points_selector=models.PointIdsList(points=ids),
                        wait=True,
                        ordering=models.WriteOrdering.MEDIUM,
                    )
            except VectorIndexUnavailableError as error:
                if error.reason == NOT_PREPARED:
                    return
                raise
            _check_completed(result)

    async def scan(
        self, generation: Generation, *, space_id: int | None, after: UUID | None, limit: int
    ) -> list[StoredVersion]:
        """Up to ``limit`` points with a uid above ``after``, in order of uid.

        Raises:
            VectorIndexUnavailableError: Qdrant is away.
        """
        if after == _MAX_UUID or limit < 1:
            return []
        try:
            async with self._call(self._spec.write_timeout_s) as client:
                records, _ = await client.scroll(
                    self._name(generation),
                    scroll_filter=None if space_id is None else payload.in_space(space_id),
                    offset=None if after is None else str(UUID(int=after.int + 1)),
                    limit=limit,
                    with_payload=payload.STORED_VERSION,
                    timeout=math.ceil(self._spec.write_timeout_s),
                )
        except VectorIndexUnavailableError as error:
            if error.reason == NOT_PREPARED:
                return []
            raise
        return [payload.stored_version(record) for record in records]

    async def drop(self, generation: Generation) -> None:
        """Delete the collection, if there is one.

        Raises:
            VectorIndexUnavailableError: Qdrant is away.
        """
        try:
            async with self._call(self._spec.write_timeout_s) as client:
                await client.delete_collection(self._name(generation))
        except VectorIndexUnavailableError as error:
            if error.reason != NOT_PREPARED:
                raise

    async def check(self) -> None:
        """Return when Qdrant answers and takes the key. Its own health check would ask for none.

        Raises:
            VectorIndexUnavailableError: It does not.
        """
        async with self._call(self._spec.timeout_s) as client:
            await client.get_collections()

    async def aclose(self) -> None:
        """Close the connection; safe to call twice."""
        if not self._closed:
            self._closed = True
            await asyncio.gather(self._client.close(), *self._closing)

    def _name(self, generation: Generation) -> str:
        return f"{self._spec.prefix}-{generation.number}-{generation.dimensions}"

    def _search_params(self) -> models.SearchParams:
        quantization = None
        if self._spec.quantization == "int8":
            quantization = models.QuantizationSearchParams(rescore=True, oversampling=self._spec.oversampling)
        return models.SearchParams(hnsw_ef=self._spec.hnsw_ef, exact=self._spec.exact, quantization=quantization)

    async def _exists(self, name: str) -> bool:
        async with self._call(self._spec.timeout_s) as client:
            return await client.collection_exists(name)

    async def _has_any(self, name: str, condition: models.Filter | None) -> bool:
        async with self._call(self._spec.write_timeout_s) as client:
            records, _ = await client.scroll(name, scroll_filter=condition, limit=1, with_payload=False)
        return bool(records)

    async def _upserts_conditionally(self) -> bool:
        """Whether the server knows ``update_filter``; one that does not would ignore it and overwrite."""
        if self._conditional_upsert is None:
            async with self._call(self._spec.timeout_s) as client:
                version = (await client.info()).version
            self._conditional_upsert = _release(version) >= _CONDITIONAL_UPSERT_SINCE
        return self._conditional_upsert

    @asynccontextmanager
    async def _call(self, timeout_s: float) -> AsyncIterator[AsyncQdrantClient]:
        if self._closed:
            raise unavailable("The vector store is closed.")
        client, begun = self._client, time.monotonic()
        try:
            async with translated(timeout_s):
                yield client
        except asyncio.CancelledError:
            if time.monotonic() - begun >= _SILENT_S:
                self._replace(client)
            raise
        except VectorIndexUnavailableError as error:
            if error.reason == UNAVAILABLE:
                self._conditional_upsert = None  # what comes back may be another version
            if error.metadata.get("cause") == "Timeout":
                self._replace(client)
            raise

    def _replace(self, client: AsyncQdrantClient) -> None:
        """Connect anew, unless another call did; those under way on the old connection get a little time to end."""
        if self._reopen is None or client is not self._client or self._closed:
            return
        self._client = self._reopen()
        task = asyncio.create_task(client.close(grpc_grace=self._spec.timeout_s))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _release(version: str) -> tuple[int, int]:
    """Major and minor number of a version; (0, 0) where there are none."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _check_completed(result: models.UpdateResult) -> None:
    # Waited for, anything else means that it may come later or not at all.
    if result.status is not models.UpdateStatus.COMPLETED:
        raise unavailable("Qdrant took a write without applying it yet; retry.", status=str(result.status.value))
