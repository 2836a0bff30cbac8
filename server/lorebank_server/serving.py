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
from typing import Any
from uuid import UUID

import structlog
import uuid_utils.compat

from lorebank_server.config import Settings
from lorebank_server.domain.errors import LorebankError
from lorebank_server.domain.principal import OPERATOR_SPACE
from lorebank_server.embedding import EmbeddingSpec, create_embedder
from lorebank_server.operations.authenticate import Authenticator
from lorebank_server.operations.services import Services, utc_now
from lorebank_server.operations.spaces import default_space
from lorebank_server.packs import shipped_vocabulary
from lorebank_server.ports.embedder import Embedder
from lorebank_server.postgres.administration import PostgresAdministration
from lorebank_server.postgres.embedding_models import adopt_model
from lorebank_server.postgres.migrate import migrate
from lorebank_server.postgres.pool import open_pool
from lorebank_server.postgres.statistics import StatisticsRefresher
from lorebank_server.postgres.storage import PostgresStorage
from lorebank_server.postgres.usage import PostgresUsageRecorder
from lorebank_server.postgres.vector_index import PgvectorIndex
from lorebank_server.rpc.server import build_server, watch_storage
from lorebank_server.telemetry.grpc_interceptor import TracingInterceptor
from lorebank_server.telemetry.logging import configure_logging
from lorebank_server.telemetry.redaction import describe_exception
from lorebank_server.telemetry.tracing import configure_tracing

EXIT_REFUSED = 78
"""Exit code (EX_CONFIG) of a server that refuses to start; starting it again would not help."""

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


def embedding_spec(settings: Settings) -> EmbeddingSpec:
    """The embedder that the settings ask for."""
    return EmbeddingSpec(
        model_dir=settings.embedding_model_dir,
        url=settings.embedding_url,
        api_key=settings.embedding_api_key.get_secret_value() if settings.embedding_api_key else None,
        model=settings.embedding_model,
        dimensions=settings.embedding_dimensions,
        threads=settings.embedding_threads,
        query_cache_size=settings.query_cache_size,
        timeout_s=settings.embedding_timeout_s,
    )


@asynccontextmanager
async def running_server(
    settings: Settings,
    dsn: str,
    *,
    clock: Callable[[], datetime] = utc_now,
    new_uid: Callable[[], UUID] = uuid_utils.compat.uuid7,
    embedder: Embedder | None = None,
    tracing_interceptor: TracingInterceptor | None = None,
) -> AsyncIterator[Running]:
    """A server on the database at ``dsn``, brought to the current schema first.

    Without an ``embedder`` the settings' own is loaded, and closed at the end.

    Raises:
        SchemaError: The database is newer than this server, or lacks pgvector.
        DatabaseRefusedError: The role of the database's address lacks a right.
        EmbeddingModelMismatchError: The stored vectors are of another model.
        RefusedToStartError: It listens beyond loopback and nobody could authenticate.
        StorageUnavailableError: Postgres is away.
    """
    async with AsyncExitStack() as stack:
        await migrate(dsn, first_space=default_space(OPERATOR_SPACE))
        if embedder is None:
            embedder = await create_embedder(embedding_spec(settings))
            stack.push_async_callback(embedder.aclose)
        model = await adopt_model(dsn, embedder)
        pool = await open_pool(dsn, size=settings.database_pool_size)
        stack.push_async_callback(_close_pool, pool)
        vector_pool = await open_pool(dsn, size=max(2, settings.database_pool_size // 2))
        stack.push_async_callback(_close_pool, vector_pool)
        administration = PostgresAdministration(pool)
        open_locally = settings.auth == "auto" and settings.listens_on_loopback
        await _announce_access(administration, settings, open_locally=open_locally)
        usage = PostgresUsageRecorder(pool)
        services = Services(
            storage=PostgresStorage(pool, embedding_model=model, clock=clock),
            administration=administration,
            embedder=embedder,
            vectors=PgvectorIndex(vector_pool),
            vocabulary=shipped_vocabulary(),
            usage=usage,
            new_uid=new_uid,
            clock=clock,
        )
        authenticator = Authenticator(administration, open_locally=open_locally, clock=clock)
        try:
            server, port, health = build_server(
                services=services,
                authenticator=authenticator,
                interceptors=[tracing_interceptor] if tracing_interceptor else [],
                listen=settings.listen,
                max_message_bytes=settings.max_message_bytes,
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
        background.append(asyncio.create_task(watch_storage(services, health), name="health"))
        for task in background:
            task.add_done_callback(_tell_failure)
        await server.start()

        async def drain() -> None:
            await health.enter_graceful_shutdown()
            await server.stop(settings.drain_grace_s)

        stack.push_async_callback(drain)
        yield Running(port=port, services=services, authenticator=authenticator, drain=drain)


async def serve(settings: Settings, dsn: str) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    tracing = configure_tracing(version("lorebank"))
    interceptor = TracingInterceptor() if tracing.enabled else None
    try:
        async with running_server(settings, dsn, tracing_interceptor=interceptor) as server:
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
        await asyncio.to_thread(tracing.shutdown, 3.0)
    _log.info("stopped")


def run_worker(settings: Settings, dsn: str) -> int:
    """Serve in this process; returns its exit code."""
    configure_logging(settings.log_level, settings.log_format)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            _run(serve(settings, dsn))
    except LorebankError as error:
        _log.error("refused_to_start", reason=error.reason, message=error.message)
        return EXIT_REFUSED if error.reason != "STORAGE_UNAVAILABLE" else os.EX_TEMPFAIL
    except Exception as error:  # noqa: BLE001 - Python's own traceback would quote what the driver's errors quote
        _log.error("worker_failed", error=describe_exception(error), exc_info=error)
        return 1
    return 0


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop  # noqa: PLC0415 - not to be had on every platform
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


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
        await asyncio.wait_for(pool.close(), timeout=5.0)
    except TimeoutError:
        pool.terminate()
