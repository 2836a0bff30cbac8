"""Which vector index a server searches, and what keeps it up to date: wired here for ``serving``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from lorebank_server.operations.draining import Drainer
from lorebank_server.ports.backlog import Backlog
from lorebank_server.ports.reindexing import IndexRebuild
from lorebank_server.ports.vector_index import VectorIndex
from lorebank_server.ports.vector_store import VectorStore
from lorebank_server.postgres.index_rebuild import PgvectorRebuild
from lorebank_server.postgres.outbox import UNCERTAIN_FOR_S, PostgresOutbox, PostgresPendingWrites, disable_outbox
from lorebank_server.postgres.outbox_rebuild import OutboxRebuild
from lorebank_server.postgres.vector_index import PgvectorIndex
from lorebank_server.vectors.guarded import GuardedStore
from lorebank_server.vectors.overlaid_index import OverlaidIndex

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class VectorBackend:
    """What a server searches vectors with.

    Attributes:
        index: What Find and the writers see of it.
        rebuild: Has the index take in a space anew.
        drainer: To be run in the background; None where vectors are in Postgres alone.
    """

    index: VectorIndex
    rebuild: IndexRebuild
    drainer: Drainer | None = None


@asynccontextmanager
async def vector_backend(
    dsn: str,
    pool: Any,
    store: VectorStore | None,
    *,
    backlog: Backlog,
    uncertain_for_s: float = UNCERTAIN_FOR_S,
) -> AsyncIterator[VectorBackend]:
    """The index over ``store``, or over Postgres without one; the outbox is switched accordingly.

    A store that is away does not matter yet: what it has to take in waits.

    Args:
        dsn: Connects as the owner of the schema.
        pool: Connections of searches, under the application's role.
        store: Outside of Postgres; closed by whoever opened it.
        backlog: Told how far the store is behind.
        uncertain_for_s: For how long a write to the store may be under way after nobody waits for it any more.

    Raises:
        StorageUnavailableError: Postgres is away, or others keep the table of embeddings busy.
    """
    if store is None:
        if not await disable_outbox(dsn):
            _log.warning(
                "outbox_left_on",
                meaning="another server on this database searches a vector store outside of it, this one does not",
            )
        yield VectorBackend(PgvectorIndex(pool), PgvectorRebuild(dsn))
        return
    outbox = PostgresOutbox(dsn, uncertain_for_s=uncertain_for_s)
    try:
        await outbox.open()
        drainer = Drainer(outbox, store, backlog=backlog)
        index = OverlaidIndex(GuardedStore(store), PostgresPendingWrites(pool), drainer)
        yield VectorBackend(index, OutboxRebuild(dsn, store), drainer)
    finally:
        await outbox.aclose()
