"""Drains the outbox: brings the present state of changed memories to a vector store outside of Postgres."""

import asyncio
import contextlib
import random
from time import monotonic
from uuid import UUID

import structlog

from lorebank_server.domain.errors import StorageUnavailableError, VectorIndexUnavailableError
from lorebank_server.ports.backlog import Backlog
from lorebank_server.ports.outbox import Outbox, Work
from lorebank_server.ports.storage import WriteConflictError
from lorebank_server.ports.vector_store import Generation, VectorStore

MOST_AT_ONCE = 256
"""Memories of one pass."""

POLL_INTERVAL_S = 1.0
"""How often to look for what other processes left, or what is due once more."""

SETTLE_BUDGET_S = 0.05
"""Longest that a writer waits for its own change to be applied."""

APPLY_TIMEOUT_S = 20.0
"""Longest that a pass writes to the store: well below the time for which a write counts as under way."""

_STUCK_AFTER_S = 0.5
_SWEPT_AT_ONCE = 1000
_LEAST_BACKOFF_S = 0.1
_MOST_BACKOFF_S = 5.0

_log = structlog.get_logger(__name__)


class _JustPreparedError(Exception):
    """The store had no room for what was claimed, and has now: claim it again, since that may have taken long."""


class Drainer:
    """Applies the outbox in the background of one process, beside any number of others.

    A change is applied as a whole: the memory's present state is read and written, so that an older one never comes
    last, whoever applies it. Nobody who writes to Postgres waits for it, except within ``settle``'s budget.
    """

    def __init__(self, outbox: Outbox, store: VectorStore, *, backlog: Backlog) -> None:
        """Drain ``outbox`` into ``store``, and keep ``backlog`` told."""
        self._outbox = outbox
        self._store = store
        self._backlog = backlog
        self._wanted = asyncio.Event()
        self._next_pass: asyncio.Future[int] | None = None
        self._pass_begin: float | None = None
        self._running = False
        self._failures = 0
        self._most = MOST_AT_ONCE
        self._prepared: set[Generation] = set()
        self._sweeps: dict[Generation, UUID | None] | None = None
        self._told = 0.0

    @property
    def available(self) -> bool:
        """Whether the latest pass went well, as far as anyone knows."""
        return not self._failures

    async def run(self) -> None:
        """Drain until cancelled; outages are waited out."""
        self._running = True
        try:
            while True:
                begun, self._next_pass = self._upcoming(), None
                self._wanted.clear()
                self._pass_begin = monotonic()
                applied = await self._attempt()
                self._pass_begin = None
                begun.set_result(applied)
                await self._tell_backlog()
                await self._rest(applied)
        finally:
            self._running = False
            await self._outbox.aclose()

    async def settle(self) -> None:
        """Wait for a pass that begins after this call: 50 ms at most, and not at all while the store is away."""
        if not self._running or self._failures or self._is_stuck():
            return
        upcoming = self._upcoming()
        self._wanted.set()
        await asyncio.wait({upcoming}, timeout=SETTLE_BUDGET_S)

    async def finish(self, timeout_s: float) -> bool:
        """Apply what is due, for ``timeout_s`` at most; returns whether nothing is left.

        What is due later, because an earlier write of it may still be under way, is left to whoever comes next.
        """
        deadline = monotonic() + timeout_s
        while self._running and not self._failures:
            upcoming = self._upcoming()
            self._wanted.set()
            done, _ = await asyncio.wait({upcoming}, timeout=max(0.0, deadline - monotonic()))
            if not done or upcoming.result() == 0:
                return bool(done) and not self._failures
        return False

    def store_was_lost(self) -> None:
        """Have the store prepared anew: a search found that it lacks what it should hold."""
        self._prepared.clear()
        self._wanted.set()

    async def _attempt(self) -> int:
        """One pass; returns how many memories it applied. Failures are counted and logged, never raised."""
        try:
            applied = await self._pass()
        except _JustPreparedError:
            return 1
        except VectorIndexUnavailableError as error:
            if error.reason == "VECTOR_INDEX_NOT_PREPARED":
                self._prepared.clear()
            self._failed("vector_store_unavailable", reason=error.reason)
        except (StorageUnavailableError, WriteConflictError):
            await self._outbox.aclose()
            self._failed("outbox_not_drained")
        except Exception as error:  # noqa: BLE001 - the outermost of this task, which must outlive it
            await self._outbox.aclose()
            self._failed("outbox_not_drained", exc_info=error)
        else:
            if self._failures:
                _log.info("vector_store_available")
            self._failures = 0
            return applied
        return 0

    async def _pass(self) -> int:
        if self._failures:
            await self._store.check()
        if not self._prepared:
            for generation in await self._outbox.generations():
                await self._prepare(generation)
        async with self._outbox.claim(self._most) as work:
            if work.memories:
                # If it fails, the next pass claims less: a memory that the store refuses must not hold up the others.
                most, self._most = self._most, max(1, work.memories // 2)
                await self._apply(work)
                self._most = min(MOST_AT_ONCE, most * 2)
        if not work.memories:
            await self._sweep()
        return work.memories

    async def _apply(self, work: Work) -> None:
        unknown = work.points.keys() - self._prepared
        for generation in unknown:
            await self._prepare(generation)
        if unknown:
            raise _JustPreparedError
        try:
            async with asyncio.timeout(APPLY_TIMEOUT_S):
                for generation, points in work.points.items():
                    await self._store.upsert(generation, points)
                for generation, uids in work.gone.items():
                    await self._store.delete(generation, uids)
        except TimeoutError:
            raise VectorIndexUnavailableError(
                "The vector store took too long for one pass.", reason="VECTOR_INDEX_UNAVAILABLE"
            ) from None

    async def _prepare(self, generation: Generation) -> None:
        await self._outbox.fill(generation, lambda: self._store.prepare(generation))
        self._prepared.add(generation)
        self._sweeps = None

    async def _sweep(self) -> None:
        """Look at one page of what the store holds for points that Postgres knows nothing of."""
        if self._sweeps is None:
            self._sweeps = dict.fromkeys(await self._outbox.unswept())
        for generation, after in list(self._sweeps.items()):
            page = await self._store.scan(generation, space_id=None, after=after, limit=_SWEPT_AT_ONCE)
            strays = await self._outbox.enqueue_strays(generation, page)
            if strays:
                _log.warning("strays_in_vector_store", points=strays)
            if len(page) < _SWEPT_AT_ONCE:
                await self._outbox.finish_sweep(generation)
                del self._sweeps[generation]
            else:
                self._sweeps[generation] = page[-1].uid
            self._wanted.set()
            return

    async def _rest(self, applied: int) -> None:
        if self._failures:
            # Nobody's poke shortens this: a store that is away is not asked for every write.
            longest = min(_MOST_BACKOFF_S, _LEAST_BACKOFF_S * 2.0 ** min(self._failures, 10))
            await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311 - to part replicas, not to keep secrets
        elif not applied:
            # Not wait_for, which loses a cancellation that comes together with what it waits for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await self._wanted.wait()

    async def _tell_backlog(self) -> None:
        if monotonic() - self._told < POLL_INTERVAL_S:
            return
        self._told = monotonic()
        try:
            rows, oldest = await self._outbox.backlog()
        except (StorageUnavailableError, WriteConflictError):
            return
        self._backlog.tell(rows=rows, oldest_enqueue_time=oldest)

    def _upcoming(self) -> "asyncio.Future[int]":
        if self._next_pass is None:
            self._next_pass = asyncio.get_running_loop().create_future()
        return self._next_pass

    def _is_stuck(self) -> bool:
        return self._pass_begin is not None and monotonic() - self._pass_begin > _STUCK_AFTER_S

    def _failed(self, event: str, **about: object) -> None:
        self._failures += 1
        self._sweeps = None
        if self._failures == 1:
            _log.warning(event, **about)
