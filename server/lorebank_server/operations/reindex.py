"""Reindex: build the vectors of a space again, with the same model or another, while it is searched and written to."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, TypeVar
from uuid import UUID

import structlog

from lorebank_server.domain.errors import AbortedError, EmbedderUnavailableError, InvalidArgumentError
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.space import Space
from lorebank_server.operations.authenticate import require_governor
from lorebank_server.operations.services import Services
from lorebank_server.operations.spaces import get_space
from lorebank_server.ports.embedder import OUTAGE, Vector
from lorebank_server.ports.reindexing import BareMemory, ReindexSession
from lorebank_server.ports.storage import WriteConflictError
from lorebank_server.ports.vector_store import Generation

EMBEDDING: Final = "embedding"
INDEXING: Final = "indexing"
SWITCHING: Final = "switching"
FINISHED: Final = "finished"

PAGE = 64
"""Memories embedded and written together."""

PATIENCE_S = 30.0
"""How long a model may be away before the call is given up; what is done stays."""

RETRY_S = 1.0

MOST_AT_SWITCH = 64
"""Memories that may be embedded while writers wait for the switch."""

SWITCH_BUDGET_S = 2.0
"""Longest that writers wait for these."""

SWITCH_ATTEMPTS = 10

LONGEST_FIND_S = 10.0
"""Until when a Find that began before the switch may still look at the former vectors."""

REMOVED_AT_ONCE = 1000

_CONFLICTS: Final = 10
_PAUSE_S: Final = 0.05
_HARMLESS: Final = "A text that every model takes."

_log = structlog.get_logger(__name__)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is.

    Attributes:
        phase: "embedding", "indexing", "switching" or "finished", in this order.
        done: Memories done in this phase; never fewer than before.
        total: Memories of this phase; never fewer than before, and as many as ``done`` at its end.
    """

    phase: str
    done: int
    total: int


Tell = Callable[[Progress], Awaitable[None]]


async def reindex(services: Services, principal: Principal, space_id: str, model: str, *, tell: Tell) -> None:
    """Build the vectors of a space again.

    Memories that have a vector of the wanted model keep it. Find goes on with the former vectors until all are there,
    then the space changes over at one moment, and the former ones are removed. What is done stays done, whatever ends
    the call; the next one goes on from there.

    Args:
        services: What operations work with.
        principal: Who calls.
        space_id: Empty for the credential's own.
        model: Name of the model to embed with; empty for the present one.
        tell: Called with every step; when it fails, so does the call.

    Raises:
        NotFoundError: The space is not there, or not the caller's.
        PermissionDeniedError: The caller does not govern it.
        InvalidArgumentError: The server has no such model.
        AbortedError: Another reindexing of the space is under way, or writers left it no moment to switch.
        EmbedderUnavailableError: The model is away.
        VectorIndexUnavailableError: The vector index is.
    """
    require_governor(principal)
    space = await get_space(services.administration, principal, space_id)
    generation = _wanted(services, space, model)
    async with services.reindexing.session(space.number, generation) as session:
        # Whoever held the session before may have moved the space on, and nobody asked for a move back.
        before, space = space, await get_space(services.administration, principal, space.id)
        if space.embedding_model != before.embedding_model:
            raise AbortedError(
                "The space has just moved to another model; read it again, then call again if you still want to.",
                reason="SPACE_MOVED",
            )
        await _Reindexing(services, session, space, generation, tell).run()


def _wanted(services: Services, space: Space, model: str) -> int:
    if not model or (space.embedding is not None and model == space.embedding.model):
        return space.embedding_model
    generation = services.embedders.named(model)
    if generation is None:
        raise InvalidArgumentError(
            f"This server has no model {model[:100]!r}; it has: {', '.join(services.embedders.labels)}. Name another "
            "one in its LOREBANK_NEXT_EMBEDDING_* settings, and start it anew.",
            field="model",
            reason="MODEL_NOT_LOADED",
        )
    return generation


class _Reindexing:
    """One run."""

    def __init__(self, services: Services, session: ReindexSession, space: Space, generation: int, tell: Tell) -> None:
        self._services = services
        self._session = session
        self._space = space
        self._embedder = services.embedders.of(generation)
        self._generation = Generation(generation, self._embedder.dimensions)
        self._moves = generation != space.embedding_model
        self._tell_caller = tell
        self._refused: set[UUID] = set()

    async def run(self) -> None:
        """From the first vector to the last."""
        _log.info("reindexing_begun", space_number=self._space.number, model=self._embedder.model)
        await self._services.index_rebuild.prepare(self._generation)
        await self._embed_bare()
        tell = self._telling(INDEXING)

        async def tell_and_hurry(done: int, total: int) -> None:
            await tell(done, total)
            await self._services.vectors.settle()

        await self._services.index_rebuild.rebuild(
            self._space.number, self._generation, anew=not self._moves, tell=tell_and_hurry
        )
        await self._tell_caller(Progress(SWITCHING, 0, 0))
        await self._switch()
        _log.info("reindexing_switched", space_number=self._space.number, model=self._embedder.model)
        # Those that somebody was changing at that moment wait for the background, which is busier than this.
        await self._catch_up(_tell_nobody)
        await self._remove_former()
        await self._services.vectors.settle()
        await self._services.index_rebuild.retire(self._space.number, self._generation)
        memories, _ = await self._session.census()
        await self._tell_caller(Progress(FINISHED, memories, memories))
        _log.info("reindexing_finished", space_number=self._space.number, refused=len(self._refused))

    async def _embed_bare(self) -> None:
        """Embed what lacks a vector, and tell how far that is."""
        tell = self._telling(EMBEDDING)
        total, bare = await self._session.census()
        done = total - bare

        async def tell_more(embedded: int) -> None:
            nonlocal done, total
            done += embedded
            total = max(total, done)
            await tell(done, total)

        await tell_more(0)
        await self._catch_up(tell_more)
        await tell(total, total)

    async def _catch_up(self, tell: Callable[[int], Awaitable[None]]) -> None:
        """Embed until less than a page is left; ``tell`` is called with how many memories were embedded since."""
        while True:
            met = written = 0
            after: BareMemory | None = None
            while page := await self._session.bare(after, PAGE, besides=self._refused):
                embedded = await self._embed_page(page)
                await tell(embedded)
                met += len(page)
                written += embedded
                # What is stored meanwhile comes behind it; what is reworded may come before it.
                after = page[-1]
                if len(page) < PAGE:
                    break
            if met < PAGE:
                return
            if not written:
                await asyncio.sleep(_PAUSE_S)  # others are changing just these

    async def _embed_page(self, page: Sequence[BareMemory]) -> int:
        vectors = await self._vectors(page)
        embedded = {memory: vector for memory, vector in zip(page, vectors, strict=True) if vector is not None}
        return len(await _despite_conflicts(lambda: self._session.write(embedded)))

    async def _vectors(self, page: Sequence[BareMemory]) -> Sequence[Vector | None]:
        """Vectors in order; None for a text that the model refuses, while it takes others.

        Raises:
            EmbedderUnavailableError: It was away for longer than there is patience for, or takes nothing at all.
        """
        deadline = monotonic() + PATIENCE_S
        while True:
            try:
                return await self._embedder.embed_documents([memory.text for memory in page])
            except EmbedderUnavailableError as error:
                if error.reason != OUTAGE:
                    break
                if monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_S)
        if len(page) > 1:
            return [vector for memory in page for vector in await self._vectors([memory])]
        await self._embedder.embed_documents([_HARMLESS])
        self._refused.add(page[0].uid)
        return [None]

    async def _switch(self) -> None:
        """Have the space searched by the generation from now on, with no memory left behind.

        Raises:
            AbortedError: There was always somebody in the way.
        """
        for _ in range(SWITCH_ATTEMPTS):
            await self._catch_up(_tell_nobody)
            try:
                async with self._session.undisturbed():
                    if await self._embed_last_and_switch():
                        return
            except WriteConflictError:
                await asyncio.sleep(_PAUSE_S)
        raise AbortedError(
            "The space was written to faster than its new vectors were made. Call again when less is stored; what is "
            "done stays done.",
            reason="SWITCH_NOT_REACHED",
        )

    async def _embed_last_and_switch(self) -> bool:
        _, bare = await self._session.census()
        last = await self._session.bare(None, MOST_AT_SWITCH + 1, besides=self._refused) if bare else []
        if len(last) > MOST_AT_SWITCH:
            return False
        vectors: Sequence[Vector] = ()
        if last:
            try:
                async with asyncio.timeout(SWITCH_BUDGET_S):
                    vectors = await self._embedder.embed_documents([memory.text for memory in last])
            except (EmbedderUnavailableError, TimeoutError):
                return False
        written = await self._session.write(dict(zip(last, vectors, strict=True)))
        await self._session.switch(self._refused | {memory.uid for memory in last} - written)
        return True

    async def _remove_former(self) -> None:
        tell = self._telling(SWITCHING)
        former = await self._session.count_former()
        await tell(0, former)
        if former:
            await asyncio.sleep(LONGEST_FIND_S)
        removed = 0
        begin = monotonic()
        while count := await _despite_conflicts(lambda: self._session.remove_former(REMOVED_AT_ONCE)):
            removed += count
            former = max(former, removed)
            await tell(removed, former)
            # Half of a processor is left to those who wait for an answer.
            await asyncio.sleep(monotonic() - begin)
            begin = monotonic()
        await tell(former, former)

    def _telling(self, phase: str) -> Callable[[int, int], Awaitable[None]]:
        async def tell(done: int, total: int) -> None:
            await self._tell_caller(Progress(phase, done, total))

        return tell


async def _despite_conflicts(change: Callable[[], Awaitable[_Result]]) -> _Result:
    for _ in range(_CONFLICTS):
        try:
            return await change()
        except WriteConflictError:
            await asyncio.sleep(_PAUSE_S)
    raise AbortedError(
        "Writers kept changing the same memories. Call again; what is done stays done.", reason="WRITE_CONFLICT"
    )


async def _tell_nobody(_embedded: int) -> None:
    pass
