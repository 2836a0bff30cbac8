"""A vector store in this process, exact and without indexes, which fails, hangs and answers late on cue.

It fences nothing by version, like servers that cannot: what the outbox promises must hold without.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from uuid import UUID

import numpy as np

from lorebank_server.domain.errors import VectorIndexUnavailableError
from lorebank_server.domain.selector import Selector
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.vector_store import Generation, StoredVersion, VectorPoint

Points = dict[UUID, VectorPoint]


class Disk:
    """What the store holds, whoever talks to it."""

    def __init__(self) -> None:
        self.points: dict[Generation, Points] = {}

    @property
    def versions(self) -> dict[UUID, int]:
        """Version by memory, over all generations."""
        return {uid: point.version for points in self.points.values() for uid, point in points.items()}


class StoreDouble:
    """One client of a store; several may share a disk.

    Attributes:
        down: Every call fails at once.
        loses_answers: Writes fail, but are kept in ``under_way`` and take effect when they ``land``.
        gate: Writes wait for it, once they have been counted in ``begun``.
        refused: Memories that the store does not take.
        before_search: Awaited before a search looks at the points.
        after_search: Awaited before a search answers.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.down = False
        self.loses_answers = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = 0
        self.refused: set[UUID] = set()
        self.under_way: list[Callable[[], None]] = []
        self.calls: dict[str, int] = defaultdict(int)
        self.before_search: Callable[[], Awaitable[None]] = _nothing
        self.after_search: Callable[[], Awaitable[None]] = _nothing

    async def prepare(self, generation: Generation) -> bool:
        self._answer("prepare")
        self.disk.points.setdefault(generation, {})
        return not self.disk.points[generation]

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
        await self.before_search()
        self._answer("search")
        found = [
            point
            for point in self._points(generation).values()
            if point.space_id == space_id and point.bucket_id in buckets and selected(point, selector, now)
        ]
        found.sort(key=lambda point: (-cosine(point.vector, vector), point.uid))
        await self.after_search()
        return {point.uid: None for point in found[:limit]}

    async def upsert(self, generation: Generation, points: Sequence[VectorPoint]) -> None:
        def write() -> None:
            self._points(generation).update({point.uid: point for point in points})

        await self._write("upsert", write, {point.uid for point in points})

    async def delete(self, generation: Generation, uids: Sequence[UUID]) -> None:
        def write() -> None:
            for uid in uids:
                self.disk.points.get(generation, {}).pop(uid, None)

        await self._write("delete", write, set(uids))

    async def scan(
        self, generation: Generation, *, space_id: int | None, after: UUID | None, limit: int
    ) -> list[StoredVersion]:
        self._answer("scan")
        points = sorted(self.disk.points.get(generation, {}).values(), key=lambda point: point.uid)
        return [
            StoredVersion(point.uid, point.space_id, point.version)
            for point in points
            if (space_id is None or point.space_id == space_id) and (after is None or point.uid > after)
        ][:limit]

    async def drop(self, generation: Generation) -> None:
        self._answer("drop")
        self.disk.points.pop(generation, None)

    async def check(self) -> None:
        self._answer("check")

    async def aclose(self) -> None:
        self.down = True

    def land(self) -> None:
        """Let the writes under way take effect, in their order."""
        under_way, self.under_way = self.under_way, []
        for write in under_way:
            write()

    async def _write(self, name: str, write: Callable[[], None], uids: set[UUID]) -> None:
        self._answer(name)
        if uids & self.refused:
            raise _unavailable("it refuses a point")
        self.begun += 1
        await self.gate.wait()
        if self.loses_answers:
            self.under_way.append(write)
            raise _unavailable("no answer in time")
        write()

    def _answer(self, name: str) -> None:
        self.calls[name] += 1
        if self.down:
            raise _unavailable("it is down")

    def _points(self, generation: Generation) -> Points:
        if generation not in self.disk.points:
            raise VectorIndexUnavailableError("No such collection.", reason="VECTOR_INDEX_NOT_PREPARED")
        return self.disk.points[generation]


def selected(point: VectorPoint, selector: Selector, now: datetime) -> bool:
    """The selector in plain words."""
    subjects = {point.subject, point.subject.lower()}
    return (
        point.state in selector.states
        and (selector.include_stale or point.stale_time is None or point.stale_time > now)
        and (point.valid_until is None or point.valid_until > now)
        and (not selector.kinds or point.kind in selector.kinds)
        and (not selector.categories or point.category in selector.categories)
        and (not selector.collections or point.collection in selector.collections)
        and set(selector.tags_all) <= set(point.tags)
        and (not selector.tags_any or bool(set(selector.tags_any) & set(point.tags)))
        and (not selector.subjects or bool(subjects & set(selector.subjects)))
        and (not selector.agents or point.agent in selector.agents)
        and (not selector.runs or point.run in selector.runs)
        and (not selector.owners or point.owner in selector.owners)
        and (not selector.ids or point.id in selector.ids)
        and (selector.created_after is None or point.create_time >= selector.created_after)
        and (selector.created_before is None or point.create_time < selector.created_before)
        and (not selector.polarity or point.polarity == selector.polarity)
    )


def cosine(a: Vector, b: Vector) -> float:
    x, y = a.astype(np.float64), b.astype(np.float16).astype(np.float64)
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


async def _nothing() -> None:
    """What a double does besides answering."""


def _unavailable(why: str) -> VectorIndexUnavailableError:
    return VectorIndexUnavailableError(f"The double does not answer: {why}.", reason="VECTOR_INDEX_UNAVAILABLE")
