"""CheckIntegrity: whether rows and vectors agree, in both directions, and putting right what does not."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

from lorebank_server.domain.fingerprints import indexed_text
from lorebank_server.domain.principal import OPERATOR_SPACE, Principal
from lorebank_server.domain.space import Space
from lorebank_server.operations.authenticate import require_governor
from lorebank_server.operations.services import Services
from lorebank_server.operations.spaces import get_space
from lorebank_server.ports.inventory import InventorySession, KeptMemory
from lorebank_server.ports.vector_store import Generation, StoredVersion, VectorStore

_PAGE = 1000
_FIRST = UUID(int=0)
_LAST = UUID(int=2**128 - 1)


@dataclass(slots=True)
class Integrity:
    """How rows and vectors compare; see ``CheckIntegrityResponse``."""

    memories: int = 0
    vectors: int = 0
    missing: int = 0
    orphaned: int = 0
    outdated: int = 0
    repaired: int = 0
    unembedded: int = 0
    pending: int = 0
    index_lag: timedelta = timedelta()
    index: str = "pgvector"
    schema: int = 0
    postgres_version: str = ""


@dataclass(slots=True)
class _Differences:
    """What a store holds otherwise than Postgres does; by now, beyond doubt.

    Attributes:
        above: The highest version that the store was seen to hold.
    """

    missing: set[UUID] = field(default_factory=set)
    outdated: set[UUID] = field(default_factory=set)
    orphaned: list[StoredVersion] = field(default_factory=list)
    above: int = 0


async def check_integrity(services: Services, principal: Principal, space_id: str, *, repair: bool) -> Integrity:
    """Compare every memory of a space with its vector and, where the index is outside of Postgres, with its point.

    Repeating it does no harm. Whoever writes meanwhile is neither blocked nor counted: what changes while it is
    compared is looked at again, and what waits to be applied is no difference. An admin of the operators' space also
    finds what deleted spaces have left in the index.

    Raises:
        NotFoundError: The space is not there, or not the caller's.
        PermissionDeniedError: The caller does not govern it.
        VectorIndexUnavailableError: The index is away.
    """
    require_governor(principal)
    space = await get_space(services.administration, principal, space_id)
    store = services.vector_store
    async with services.inventory.session() as session:
        facts = await session.facts(space.number)
        found = Integrity(
            unembedded=facts.unembedded,
            pending=facts.pending,
            index_lag=services.clock() - facts.oldest_enqueue_time if facts.oldest_enqueue_time else timedelta(),
            index="pgvector" if store is None else "qdrant",
            schema=facts.schema,
            postgres_version=facts.postgres_version,
        )
        if facts.generation is None:
            return found
        outdated = await _check_rows(session, space, facts.generation, found, repair=repair)
        if store is not None:
            found.vectors = 0
            for generation in _with(facts.generation, await session.generations(space.number)):
                differences = _Differences()
                points = await _compare(session, store, space, generation, differences)
                found.vectors += points if generation == facts.generation else 0
                await _record(session, generation, differences, found, outdated, repair=repair)
            if space.id == OPERATOR_SPACE:
                for generation in _with(facts.generation, await session.generations(None)):
                    differences = _Differences()
                    await _find_abandoned(session, store, generation, differences)
                    await _record(session, generation, differences, found, outdated, repair=repair)
    if found.repaired:
        await services.vectors.settle()
    return found


async def _check_rows(
    session: InventorySession, space: Space, generation: Generation, found: Integrity, *, repair: bool
) -> set[UUID]:
    """Compare memories with the vectors that Postgres keeps; returns those whose vector is of other words."""
    outdated: set[UUID] = set()
    async for page in session.memories(space.number, generation):
        bare = [memory.uid for memory in page if memory.text_hash is None]
        reworded = await asyncio.to_thread(_reworded, page)
        misplaced = [memory.uid for memory in page if memory.text_hash is not None and not memory.aligned]
        outdated.update(reworded, misplaced)
        found.memories += len(page)
        found.vectors += len(page) - len(bare)
        found.missing += len(bare)
        if repair and (bare or reworded):
            await session.await_embedding([*bare, *reworded])
        if repair and misplaced:
            await session.align(misplaced)
        if repair:
            found.repaired += len(bare) + len({*reworded, *misplaced})
    found.outdated += len(outdated)
    strays = await session.strays(space.number)
    found.orphaned += len(strays)
    found.vectors += len(strays)
    if repair and strays:
        await session.discard(strays)
        found.repaired += len(strays)
    return outdated


def _reworded(page: Sequence[KeptMemory]) -> list[UUID]:
    """Memories whose vector is of other words than theirs; a page takes some milliseconds, off the event loop."""
    return [
        memory.uid
        for memory in page
        if memory.text_hash is not None
        and memory.text_hash != sha256(indexed_text(memory.draft, memory.create_time).encode()).digest()
    ]


def _with(active: Generation, others: Iterable[Generation]) -> list[Generation]:
    return sorted({active, *others}, key=lambda generation: generation.number)


async def _record(
    session: InventorySession,
    generation: Generation,
    differences: _Differences,
    found: Integrity,
    already: Collection[UUID],
    *,
    repair: bool,
) -> None:
    """Count the differences of a store, those left out that were counted as rows ``already``, and repair them."""
    renewed = differences.missing | differences.outdated
    counted = renewed.difference(already)
    found.missing += len(differences.missing)
    found.outdated += len(differences.outdated.difference(already))
    found.orphaned += len(differences.orphaned)
    if repair and renewed:
        await session.renew(generation, renewed, above=differences.above)
    if repair and differences.orphaned:
        await session.enqueue(differences.orphaned)
    if repair:
        found.repaired += len(counted) + len(differences.orphaned)


async def _compare(
    session: InventorySession, store: VectorStore, space: Space, generation: Generation, differences: _Differences
) -> int:
    """Walk through both in order of uid, side by side; returns the number of points."""
    kept = _Pages(session.versions(space.number, generation))
    held = _Pages(_scan(store, generation, space.number))
    points = 0
    while not (kept.ended and held.ended):
        # Up to here both are known; what lies beyond the shorter page comes with the next.
        bound = min(await kept.known_up_to(), await held.known_up_to())
        rows = dict(kept.take(bound))
        found = dict(held.take(bound))
        points += len(found)
        differences.above = max(differences.above, *found.values(), 0)
        suspects = {uid for uid in rows.keys() | found.keys() if rows.get(uid) != found.get(uid)}
        if suspects:
            await _confirm(session, store, space.number, generation, suspects, differences)
    return points


async def _confirm(
    session: InventorySession,
    store: VectorStore,
    space_id: int,
    generation: Generation,
    suspects: set[UUID],
    differences: _Differences,
) -> None:
    """Count the differences that are still there and that nobody is about to put right.

    Postgres is asked, then the store, then Postgres again. Where it says the same both times and nothing waits either
    time, the store ought to have held that very version in between.
    """
    before = await session.current(generation, suspects)
    held: dict[UUID, int] = {}
    async for page in _scan(store, generation, space_id, after=_before(min(suspects)), up_to=max(suspects)):
        held.update((uid, version) for uid, version in page if uid in suspects)
    after = await session.current(generation, suspects)
    for uid in sorted(suspects):
        if before[uid] != after[uid] or after[uid].pending or after[uid].version == held.get(uid):
            continue
        if uid not in held:
            differences.missing.add(uid)
        elif after[uid].version is None:
            differences.orphaned.append(StoredVersion(uid, space_id, held[uid]))
        else:
            differences.outdated.add(uid)


async def _find_abandoned(
    session: InventorySession, store: VectorStore, generation: Generation, differences: _Differences
) -> None:
    """Find points of spaces that are gone."""
    after: UUID | None = None
    while page := await store.scan(generation, space_id=None, after=after, limit=_PAGE):
        spaces = await session.spaces()
        suspects = {point.uid: point for point in page if point.space_id not in spaces}
        if suspects:
            states = await session.current(generation, suspects)
            there = await store.scan(generation, space_id=None, after=after, limit=len(page))
            still = {point.uid for point in there}
            again = await session.current(generation, suspects)
            differences.orphaned += [
                point
                for uid, point in suspects.items()
                if uid in still and again[uid].version is None and not (states[uid].pending or again[uid].pending)
            ]
        after = page[-1].uid


async def _scan(
    store: VectorStore, generation: Generation, space_id: int, *, after: UUID | None = None, up_to: UUID = _LAST
) -> AsyncIterator[Sequence[tuple[UUID, int]]]:
    """The points of a space in pages, in order of uid."""
    while page := await store.scan(generation, space_id=space_id, after=after, limit=_PAGE):
        yield [(point.uid, point.version) for point in page if point.uid <= up_to]
        after = page[-1].uid
        if len(page) < _PAGE or after >= up_to:
            return


def _before(uid: UUID) -> UUID | None:
    return UUID(int=uid.int - 1) if uid != _FIRST else None


class _Pages:
    """Pages in order of uid, of which one is held at a time."""

    def __init__(self, pages: AsyncIterator[Sequence[tuple[UUID, int]]]) -> None:
        self._pages = pages
        self._held: list[tuple[UUID, int]] = []
        self._exhausted = False

    @property
    def ended(self) -> bool:
        """Whether everything was taken."""
        return self._exhausted and not self._held

    async def known_up_to(self) -> UUID:
        """The highest uid up to which nothing is unknown; reads the next page when none is held."""
        while not self._held and not self._exhausted:
            page = await anext(self._pages, None)
            self._exhausted = page is None
            self._held = list(page or ())
        return self._held[-1][0] if self._held else _LAST

    def take(self, bound: UUID) -> Iterable[tuple[UUID, int]]:
        """What is held up to the bound, which is held no longer."""
        taken = [entry for entry in self._held if entry[0] <= bound]
        self._held = self._held[len(taken) :]
        return taken
