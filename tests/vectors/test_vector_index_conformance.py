"""One suite for every vector index: the same memories, the same ids in the same order, the same cosines."""

import asyncio
import warnings
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np
import pytest
from memory_rows import apart, bucket, connect, open_spaces, remove, write
from store_backends import BACKENDS, open_store
from test_qdrant_store_search import SELECTIONS
from vector_points import BUCKETS, DIMENSIONS, NOW, expected, many_points, point, unit_vector

from lorebank_server.domain.selector import Selector
from lorebank_server.operations.draining import Drainer
from lorebank_server.ports.backlog import Backlog
from lorebank_server.ports.storage import RecallPlan
from lorebank_server.ports.vector_index import VectorIndex
from lorebank_server.postgres.outbox import PostgresOutbox, PostgresPendingWrites
from lorebank_server.postgres.pool import open_pool
from lorebank_server.postgres.vector_index import PgvectorIndex
from lorebank_server.vectors.overlaid_index import OverlaidIndex

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect", "ignore:Local mode performs exact")

POINTS = apart(many_points())
COSINES = 1e-5  # what half precision and two ways of summing leave open
DEADLINE_S = 60.0

_DRAINED = "select outbox_is_on() and not exists (select from outbox)"


@dataclass
class Indexed:
    """An index that knows ``POINTS``."""

    index: VectorIndex
    model: int

    async def search(
        self,
        selector: Selector = Selector(),
        *,
        space_id: int = 1,
        buckets: tuple[int, ...] = BUCKETS,
        limit: int = 1000,
        seed: int = 9999,
    ) -> dict[UUID, float | None]:
        visible = tuple(bucket(space_id, number) for number in buckets)
        plan = RecallPlan(space_id, self.model, visible, (), (), len(POINTS), 0)
        found = await self.index.search(plan, unit_vector(seed), selector, now=NOW, limit=limit)
        assert () == found.degraded
        assert found.complete
        return found.similarities


def oracle(selector=None, *, space_id=1, buckets=BUCKETS, limit=1000, seed=9999) -> list[UUID]:
    visible = tuple(bucket(space_id, number) for number in buckets)
    return expected(POINTS, space_id, visible, unit_vector(seed), selector or Selector(), limit)


def _earlier(one):
    """What a memory was before: another vector, other words to select by, perhaps not there to be found."""
    return replace(
        one,
        vector=unit_vector(one.uid.int % 2**32),
        state=5 if one.uid.int % 2 else 2,
        tags=("go",),
        kind=1 + one.uid.int % 3,
        stale_time=None,
    )


@asynccontextmanager
async def _pgvector(dsn, pool):
    connection = await connect(dsn)
    model = await open_spaces(connection, DIMENSIONS)
    await write(connection, model, POINTS)
    await connection.close()
    yield Indexed(PgvectorIndex(pool), model)


@asynccontextmanager
async def _overlaid(dsn, pool, backend, *, waiting):
    """Drained into a store; where some are ``waiting``, the store knows those as they were, and some that are gone."""
    changed = [one for number, one in enumerate(POINTS) if waiting and number % 3 == 0]
    gone = [point(5000 + number, bucket_id=bucket(1, BUCKETS[0])) for number in range(40 if waiting else 0)]
    new = changed[: len(changed) // 4]
    old = [one for one in POINTS if one not in changed] + [_earlier(one) for one in changed if one not in new] + gone
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(backend))
        connection = await connect(dsn)
        stack.push_async_callback(connection.close)
        model = await open_spaces(connection, DIMENSIONS)
        await write(connection, model, old)
        drainer = Drainer(PostgresOutbox(dsn), store, backlog=Backlog())
        task = asyncio.create_task(drainer.run())
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not await connection.fetchval(_DRAINED):  # noqa: ASYNC110 - the database sets no event
                    await asyncio.sleep(0.02)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if waiting:
            await write(connection, model, changed)
            await remove(connection, gone)
        yield Indexed(OverlaidIndex(store, PostgresPendingWrites(pool), drainer), model)


@pytest.fixture(
    scope="module", params=["pgvector", *BACKENDS, *(f"{backend} with much waiting" for backend in BACKENDS)]
)
async def indexed(request, database_factory):
    backend, _, waiting = request.param.partition(" ")
    dsn = await database_factory()
    pool = await open_pool(dsn, size=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # local mode says how it differs
        opened = _pgvector(dsn, pool) if backend == "pgvector" else _overlaid(dsn, pool, backend, waiting=bool(waiting))
        async with opened as index:
            yield index
    await pool.close()


@pytest.mark.parametrize("selection", SELECTIONS, ids="+".join)
async def test_a_selection_finds_what_brute_force_finds(indexed: Indexed, selection) -> None:
    selector = Selector(**selection)
    for space_id in (1, 2):
        found = await indexed.search(selector, space_id=space_id)
        assert oracle(selector, space_id=space_id) == list(found)


@pytest.mark.parametrize("limit", [1, 7, 40, 1000])
@pytest.mark.parametrize("seed", range(5))
async def test_the_nearest_come_first_and_no_more_than_asked_for(indexed: Indexed, limit: int, seed: int) -> None:
    found = await indexed.search(limit=limit, seed=seed)

    assert oracle(limit=limit, seed=seed) == list(found)


@pytest.mark.parametrize("buckets", [(), BUCKETS[:1], BUCKETS[1:], BUCKETS])
async def test_a_caller_finds_what_lies_in_its_buckets(indexed: Indexed, buckets) -> None:
    for space_id in (1, 2):
        found = await indexed.search(space_id=space_id, buckets=buckets)
        assert oracle(space_id=space_id, buckets=buckets) == list(found)


async def test_cosines_are_exact_where_they_are_told(indexed: Indexed) -> None:
    vectors = {one.uid: one.vector.astype(np.float64) for one in POINTS}
    query = unit_vector(9999).astype(np.float64)

    for uid, similarity in (await indexed.search()).items():
        vector = vectors[uid]
        cosine = vector @ query / (np.linalg.norm(vector) * np.linalg.norm(query))
        assert similarity is None or abs(similarity - cosine) < COSINES


def test_the_world_is_worth_searching() -> None:
    sizes = {space_id: len(oracle(space_id=space_id)) for space_id in (1, 2)}
    assert min(sizes.values()) > 40
    assert min(len(oracle(Selector(**selection))) for selection in SELECTIONS) > 0
