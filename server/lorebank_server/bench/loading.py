"""Filling a database with a corpus: through Store itself, with vectors that were made before."""

import os
import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import uuid_utils.compat

from lorebank_server.bench.corpus import Corpus
from lorebank_server.bench.failures import BenchError
from lorebank_server.bench.vectors import Embedded, Progress, Vectors
from lorebank_server.domain.errors import LorebankError
from lorebank_server.domain.keys import ApiKey
from lorebank_server.domain.principal import OPERATOR_SPACE, Principal, Role
from lorebank_server.operations.embedders import Embedders
from lorebank_server.operations.keys import issue_key
from lorebank_server.operations.services import Services
from lorebank_server.operations.spaces import default_space
from lorebank_server.operations.store import OnDuplicate, StoreCommand, store_many
from lorebank_server.packs import shipped_vocabulary
from lorebank_server.ports.embedder import Vector
from lorebank_server.postgres.administration import PostgresAdministration
from lorebank_server.postgres.connection import owner_connection
from lorebank_server.postgres.embedding_models import adopt_models
from lorebank_server.postgres.index_rebuild import PgvectorRebuild
from lorebank_server.postgres.inventory import PostgresInventory
from lorebank_server.postgres.migrate import migrate
from lorebank_server.postgres.pool import open_pool
from lorebank_server.postgres.reindexing import PostgresReindexing
from lorebank_server.postgres.statistics import StatisticsRefresher
from lorebank_server.postgres.storage import PostgresStorage
from lorebank_server.postgres.usage import PostgresUsageRecorder
from lorebank_server.postgres.vector_index import PgvectorIndex
from lorebank_server.postgres.vector_indexer import VectorIndexer

OWNER: Final = "bench"

_BATCH: Final = 2000
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where parallel builds keep their graph
_MIB: Final = 1024 * 1024


class ForeignDataError(BenchError):
    """The database holds something else than the beginning of this corpus; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a database holds now, and what that took.

    Attributes:
        fresh: How many of the memories were written now.
        write_s: Seconds that writing them took.
        index_s: Seconds that statistics and indexes took.
        secret: An API key that reads them.
    """

    memories: int
    fresh: int
    write_s: float
    index_s: float
    secret: str


class KnownVectors:
    """The embedder of a load: answers a batch of texts with the vectors that were made for them."""

    def __init__(self, corpus: Corpus, embedded: Embedded) -> None:
        self.position = 0
        self._corpus = corpus
        self._vectors: Vectors = embedded.vectors
        self.model = embedded.model
        self.dimensions = embedded.dimensions

    async def embed_query(self, text: str) -> Vector:
        """Fail: a load asks nothing."""
        raise NotImplementedError(text)

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors from ``position`` on.

        Raises:
            RuntimeError: The texts are not those that the vectors were made of.
        """
        positions = range(self.position, self.position + len(texts))
        if list(texts) != [self._corpus.text(position) for position in positions]:
            raise RuntimeError("A memory is indexed by another text than its vector was made of.")
        return list(self._vectors[positions.start : positions.stop].astype("float32"))

    async def aclose(self) -> None:
        """Nothing to release."""


async def load(dsn: str, corpus: Corpus, embedded: Embedded, *, known: int, progress: Progress) -> Loaded:
    """Bring a database to the schema, and to as many memories as there are vectors; then count and index them.

    Every batch of 2,000 is one transaction, so that an interrupted load goes on where it was.

    Args:
        dsn: Connects as the owner of the schema, while no server runs.
        corpus: What is written; a database that holds its beginning gets the rest.
        embedded: Its vectors, as many as there are to be memories.
        known: How many memories of this corpus the database may hold already.
        progress: Told after each batch.

    Raises:
        ForeignDataError: The database holds other memories, or more.
    """
    async with AsyncExitStack() as stack:
        await migrate(dsn, first_space=default_space(OPERATOR_SPACE))
        embedder = KnownVectors(corpus, embedded)
        (model,) = await adopt_models(dsn, [embedder])
        owner = await stack.enter_async_context(owner_connection(dsn))
        held = await owner.fetchval("select count(*) from memories")
        wanted = len(embedded.vectors)
        if held > min(known, wanted):
            raise ForeignDataError(
                f"There are {held} memories in the database, of which {min(known, wanted)} are expected. "
                "Name another folder, or ask for as many memories as this one was loaded with."
            )
        pool = await open_pool(dsn, size=2)
        stack.push_async_callback(pool.close)
        services = Services(
            storage=PostgresStorage(pool, clock=_now),
            administration=PostgresAdministration(pool, embedding_model=model),
            embedders=Embedders({model: embedder}, primary=model),
            vectors=PgvectorIndex(pool),
            vocabulary=shipped_vocabulary(),
            usage=PostgresUsageRecorder(pool),
            inventory=PostgresInventory(dsn),
            reindexing=PostgresReindexing(dsn),
            index_rebuild=PgvectorRebuild(dsn),
            new_uid=uuid_utils.compat.uuid7,
            clock=_now,
        )
        space = await owner.fetchval("select number from spaces where id = $1", OPERATOR_SPACE)
        begin = perf_counter()
        for start in range(held, wanted, _BATCH):
            embedder.position = start
            await _store(services, space, corpus, range(start, min(wanted, start + _BATCH)))
            progress(f"loaded {min(wanted, start + _BATCH)} of {wanted}")
        written = perf_counter()
        if held < wanted:
            await _index(owner, progress)
        indexed = perf_counter()
        secret = await _reading_key(services, space)
    return Loaded(wanted, wanted - held, written - begin, indexed - written, secret)


async def _store(services: Services, space: int, corpus: Corpus, positions: range) -> None:
    writer = Principal(space_id=space, space=OPERATOR_SPACE, owner=OWNER, role=Role.WRITER)
    commands = [StoreCommand(corpus.draft(position), OnDuplicate.KEEP_BOTH) for position in positions]
    for outcome in await store_many(services, writer, commands):
        if isinstance(outcome, LorebankError):
            raise outcome


async def _index(owner: Any, progress: Progress) -> None:
    """What a server does in the background, until nothing is left of it."""
    progress("counting words")
    await StatisticsRefresher.analyze(owner)
    await StatisticsRefresher.refresh(owner)
    progress("building vector indexes")
    await owner.execute(f"set maintenance_work_mem = '{_build_memory_mib()}MB'")
    while await VectorIndexer.bring_up_to_date(owner):
        progress("building vector indexes")
    await owner.execute("vacuum (analyze) memories, embeddings")


def _build_memory_mib() -> int:
    """What building an index may take: a graph that does not fit is built many times slower."""
    share = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    if _SHARED_MEMORY.exists():
        share = min(share, shutil.disk_usage(_SHARED_MEMORY).free * 3 // 4)
    return max(64, min(4096, share // _MIB))


async def _reading_key(services: Services, space: int) -> str:
    operator = Principal(space_id=space, space=OPERATOR_SPACE, owner=OWNER, role=Role.ADMIN)
    wanted = ApiKey(id="", display_name="bench", owner=OWNER, roles=(Role.READER,), project="", create_time=_now())
    _, secret = await issue_key(services.administration, operator, OPERATOR_SPACE, wanted, now=_now())
    return secret


def _now() -> datetime:
    return datetime.now(UTC)
