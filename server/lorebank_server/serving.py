"""The serving process: wires ports to adapters, serves, and drains."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from time import monotonic
from typing import Any
from uuid import UUID

import structlog
import uuid_utils.compat

from lorebank_server.config import ConfigurationError, Settings
from lorebank_server.domain.errors import LorebankError
from lorebank_server.domain.principal import OPERATOR_SPACE
from lorebank_server.embedding import CachedEmbedder
from lorebank_server.embedding.cache import VectorCache
from lorebank_server.embedding_backend import embedding_backend
from lorebank_server.event_loop import run
from lorebank_server.operations.authenticate import Authenticator
from lorebank_server.operations.services import Services, utc_now
from lorebank_server.operations.spaces import default_space
from lorebank_server.packs import shipped_vocabulary
from lorebank_server.ports.backlog import Backlog
from lorebank_server.ports.embedder import Embedder
from lorebank_server.ports.vector_store import VectorStore
from lorebank_server.postgres.administration import PostgresAdministration
from lorebank_server.postgres.embedding_backfill import EmbeddingBackfill
from lorebank_server.postgres.inventory import PostgresInventory
from lorebank_server.postgres.migrate import migrate
from lorebank_server.postgres.pool import open_pool
from lorebank_server.postgres.reindexing import PostgresReindexing
from lorebank_server.postgres.statistics import StatisticsRefresher
from lorebank_server.postgres.storage import PostgresStorage
from lorebank_server.postgres.usage import PostgresUsageRecorder
from lorebank_server.postgres.vector_indexer import VectorIndexer
from lorebank_server.rpc.server import build_server, watch_storage
from lorebank_server.telemetry.grpc_interceptor import TelemetryInterceptor
from lorebank_server.telemetry.logging import configure_logging
from lorebank_server.telemetry.observed import observe
from lorebank_server.telemetry.process import Telemetry, configure_telemetry
from lorebank_server.telemetry.redaction import describe_exception
from lorebank_server.vector_backend import vector_backend
from lorebank_server.vectors import QdrantSpec, open_store

EXIT_REFUSED = 78
"""Exit code (EX_CONFIG) of a server that refuses to start; starting it again would not help."""

_PASSING = frozenset({"STORAGE_UNAVAILABLE", "EMBEDDER_UNAVAILABLE"})
"""Reasons not to start that may be over soon."""

_log = structlog.get_logger(__name__)


class RefusedToStartError(LorebankError):
    """The server would not be safe, or not be usable, as it is set."""


@dataclass(slots=True)
class Running:
    """A server that serves.

    Attributes:
        port: The port it listens on, also where the setting asked for any.
        services: What its operations work with.
        drain: Stops taking calls and waits for those under way.
    """

    port: int
    services: Services
    authenticator: Authenticator
    drain: Callable[[], Coroutine[Any, Any, None]]


def qdrant_spec(settings: Settings) -> QdrantSpec | None:
    """The vector store that the settings ask for; None where Postgres searches."""
    if settings.qdrant_url is None:
        return None
    return QdrantSpec(
        url=settings.qdrant_url,
        api_key=settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None,
        ca_file=settings.qdrant_ca_file,
        timeout_s=settings.qdrant_timeout_s,
        write_timeout_s=settings.qdrant_write_timeout_s,
        prefix=settings.qdrant_prefix,
        payload_m=settings.qdrant_payload_m,
        ef_construct=settings.qdrant_ef_construct,
        quantization=settings.qdrant_quantization,
        on_disk=settings.qdrant_on_disk,
        shards=settings.qdrant_shards,
        replicas=settings.qdrant_replicas,
        write_consistency=settings.qdrant_write_consistency,
        hnsw_ef=settings.qdrant_hnsw_ef,
        exact=settings.qdrant_exact,
        oversampling=settings.qdrant_oversampling,
    )


@asynccontextmanager
async def running_server(
    settings: Settings,
    dsn: str,
    *,
    clock: Callable[[], datetime] = utc_now,
    new_uid: Callable[[], UUID] = uuid_utils.compat.uuid7,
    embedder: Embedder | None = None,
    next_embedder: Embedder | None = None,
    vector_store: VectorStore | None = None,
    telemetry: Telemetry | None = None,
) -> AsyncIterator[Running]:
    """A server on the database at ``dsn``, brought to the current schema first.

    Without an ``embedder`` the settings' own is loaded, and closed at the end, and so for ``next_embedder``; a
    ``vector_store`` takes the place of the settings' own and stays the caller's to close. ``telemetry`` stays the
    caller's to end.

    Raises:
        SchemaError: The database is newer than this server, or lacks pgvector.
        DatabaseRefusedError: The role of the database's address lacks a right.
        EmbeddingModelMismatchError: There are stored vectors of none of the models that it has.
        RefusedToStartError: It listens beyond loopback and nobody could authenticate.
        StorageUnavailableError: Postgres is away.
        VectorIndexUnavailableError: The settings of Qdrant cannot be used. That it is away does not matter here.
    """
    async with AsyncExitStack() as stack:
        await migrate(dsn, first_space=default_space(OPERATOR_SPACE))
        embedders = await stack.enter_async_context(
            embedding_backend(settings, dsn, embedder=embedder, next_embedder=next_embedder)
        )
        pool = await open_pool(dsn, size=settings.database_pool_size)
        stack.push_async_callback(_close_pool, pool)
        vector_pool = await open_pool(dsn, size=max(2, settings.database_pool_size // 2), beside=pool)
        stack.push_async_callback(_close_pool, vector_pool)
        administration = PostgresAdministration(pool, embedding_model=embedders.primary)
        open_locally = settings.auth == "auto" and settings.listens_on_loopback
        await _announce_access(administration, settings, open_locally=open_locally)
        usage = PostgresUsageRecorder(pool)
        backlog = Backlog()
        spec = qdrant_spec(settings)
        if vector_store is None and spec is not None:
            vector_store = open_store(spec)
            stack.push_async_callback(vector_store.aclose)
        vectors = await stack.enter_async_context(vector_backend(dsn, vector_pool, vector_store, backlog=backlog))
        services = Services(
            storage=PostgresStorage(pool, clock=clock),
            administration=administration,
            embedders=embedders,
            vectors=vectors.index,
            vocabulary=shipped_vocabulary(),
            usage=usage,
            inventory=PostgresInventory(dsn),
            reindexing=PostgresReindexing(dsn),
            index_rebuild=vectors.rebuild,
            new_uid=new_uid,
            vector_store=vector_store,
            clock=clock,
        )
        authenticator = Authenticator(administration, open_locally=open_locally, clock=clock)
        interceptor = TelemetryInterceptor()
        if telemetry and telemetry.metrics.provider:
            observe(
                telemetry.metrics.provider,
                pools={"requests": pool, "vectors": vector_pool},
                caches=_caches_of(embedders.of(embedders.primary)),
                backlog=backlog,
                calls_under_way=lambda: interceptor.calls_under_way,
                clock=clock,
            )
        try:
            server, port, health = build_server(
                services=services,
                authenticator=authenticator,
                interceptors=[interceptor] if telemetry and telemetry.enabled else [],
                listen=settings.listen,
                max_message_bytes=settings.max_message_bytes,
                shared_port=settings.workers > 1,
            )
        except RuntimeError as error:
            raise RefusedToStartError(
                f"Cannot listen on {settings.listen}: another program has that port, or the address is not this "
                "machine's. Stop the other one, or set LOREBANK_LISTEN.",
                reason="ADDRESS_NOT_AVAILABLE",
            ) from error
        background = await stack.enter_async_context(_background())
        background.append(asyncio.create_task(usage.run(), name="usage"))
        background.append(asyncio.create_task(StatisticsRefresher(dsn).run(), name="statistics"))
        if vectors.drainer is None:
            background.append(asyncio.create_task(VectorIndexer(dsn).run(), name="vector indexes"))
        else:
            background.append(asyncio.create_task(vectors.drainer.run(), name="outbox"))
        backfill = EmbeddingBackfill(dsn, embedders)
        background.append(asyncio.create_task(backfill.run(), name="embedding backfill"))
        background.append(asyncio.create_task(watch_storage(services, health), name="health"))
        for task in background:
            task.add_done_callback(_tell_failure)
        await server.start()

        async def drain() -> None:
            deadline = monotonic() + settings.drain_grace_s
            await health.enter_graceful_shutdown()
            await server.stop(settings.drain_grace_s)
            if vectors.drainer is not None:
                await vectors.drainer.finish(max(0.0, deadline - monotonic()))

        stack.push_async_callback(drain)
        yield Running(port=port, services=services, authenticator=authenticator, drain=drain)


async def serve(settings: Settings, dsn: str) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    telemetry = configure_telemetry(version("lorebank"), metrics_listen=settings.metrics_listen)
    try:
        async with running_server(settings, dsn, telemetry=telemetry) as server:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
            host = settings.listen.rpartition(":")[0]
            _log.info("serving", address=f"{host}:{server.port}", version=version("lorebank"))
            await stop.wait()
            _log.info("draining", grace_s=settings.drain_grace_s)
            await server.drain()
    finally:
        await asyncio.to_thread(telemetry.shutdown, 3.0)
    _log.info("stopped")


def run_worker(settings: Settings, dsn: str) -> int:
    """Serve in this process; returns its exit code."""
    configure_logging(settings.log_level, settings.log_format)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run(serve(settings, dsn))
    except LorebankError as error:
        _log.error("refused_to_start", reason=error.reason, message=error.message)
        return os.EX_TEMPFAIL if error.reason in _PASSING else EXIT_REFUSED
    except ConfigurationError as error:
        _log.error("refused_to_start", reason="MISCONFIGURED", message=str(error))
        return EXIT_REFUSED
    except Exception as error:  # noqa: BLE001 - Python's own traceback would quote what the driver's errors quote
        _log.error("worker_failed", error=describe_exception(error), exc_info=error)
        return 1
    return 0


async def _announce_access(administration: PostgresAdministration, settings: Settings, *, open_locally: bool) -> None:
    if await administration.open_space(OPERATOR_SPACE) is None:
        return
    if open_locally:
        _log.warning(
            "open_to_local_callers",
            meaning=f"no API key exists: every local caller is admin of the space {OPERATOR_SPACE!r}",
            remedy="lorebank keys create --owner NAME --role admin",
        )
        return
    raise RefusedToStartError(
        f"No API key exists, and without one nobody may call a server that listens on {settings.listen}"
        f"{' with LOREBANK_AUTH=required' if settings.auth == 'required' else ', beyond this machine'}. Create the "
        "first key with 'lorebank keys create --direct --owner NAME --role admin', then start again.",
        reason="NO_CREDENTIALS",
    )


def _caches_of(embedder: Embedder) -> dict[str, VectorCache]:
    if not isinstance(embedder, CachedEmbedder):
        return {}
    return {"query": embedder.queries, "document": embedder.documents}


@asynccontextmanager
async def _background() -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tell_failure(task: "asyncio.Task[None]") -> None:
    """A part that died is not fatal, but must not go unnoticed."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("background_task_failed", task=task.get_name(), exc_info=error)


async def _close_pool(pool: Any) -> None:
    try:
        await asyncio.wait_for(pool.close(), timeout=2.0)
    except TimeoutError:
        pool.terminate()
