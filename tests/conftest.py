"""Real servers for the tests: one embedded Postgres per run, a fresh database from a template per test."""

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from lorebank_server.config import Settings
from lorebank_server.embedding import CachedEmbedder, EmbeddingSpec, create_embedder
from lorebank_server.operations.spaces import default_space
from lorebank_server.postgres import embedded
from lorebank_server.postgres.migrate import migrate
from lorebank_server.serving import Running, running_server

_TEMPLATE = "lorebank_template"


class Clock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **parts: float) -> None:
        self.now += timedelta(**parts)


@dataclass(frozen=True)
class LiveServer:
    """A server under test."""

    address: str
    dsn: str
    running: Running


ServerFactory = Callable[..., AbstractAsyncContextManager[LiveServer]]


@pytest.fixture(scope="session")
def data_folder() -> Iterator[Path]:
    """A folder that Postgres's unprivileged account reaches, for the whole run."""
    folder = Path(tempfile.mkdtemp(prefix="lorebank-tests-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(data_folder: Path) -> Iterator[embedded.EmbeddedPostgres]:
    """The run's Postgres; what it loses in a power cut does not matter here."""
    with embedded.start(data_folder / "data", settings={"fsync": "off", "max_connections": "200"}) as running:
        asyncio.run(_make_template(running.dsn))
        yield running


async def _make_template(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"create database {_TEMPLATE}")
    await connection.close()
    await migrate(dsn.replace("/lorebank?", f"/{_TEMPLATE}?"), first_space=default_space("default"))


@pytest.fixture(scope="session")
def database_factory(postgres: embedded.EmbeddedPostgres) -> Callable[[], Any]:
    """Makes migrated databases, each empty."""
    numbers = itertools.count(1)

    async def create() -> str:
        name = f"test_{os.getpid()}_{next(numbers)}"
        connection = await asyncpg.connect(postgres.dsn)
        try:
            await connection.execute(f"create database {name} template {_TEMPLATE}")
        finally:
            await connection.close()
        return postgres.dsn.replace("/lorebank?", f"/{name}?")

    return create


@pytest.fixture
async def database(database_factory: Callable[[], Any]) -> str:
    """The address of a fresh, migrated database."""
    return str(await database_factory())


@pytest.fixture(scope="session")
async def embedder() -> AsyncIterator[CachedEmbedder]:
    """The real model, loaded once."""
    loaded = await create_embedder(EmbeddingSpec(threads=2))
    yield loaded
    await loaded.aclose()


@pytest.fixture
def clock() -> Clock:
    """The time, for tests that turn it."""
    return Clock()


@pytest.fixture
async def server_factory(database_factory: Callable[[], Any], embedder: CachedEmbedder) -> ServerFactory:
    """Starts real servers; ``dsn`` reuses a database, other arguments are settings or go to ``running_server``."""

    @asynccontextmanager
    async def start(
        *, dsn: str | None = None, clock: Clock | None = None, **settings: Any
    ) -> AsyncIterator[LiveServer]:
        address = dsn or await database_factory()
        extra: dict[str, Any] = {"clock": clock} if clock else {}
        chosen = Settings(**{"listen": "127.0.0.1:0", "database_pool_size": 8, "drain_grace_s": 2.0, **settings})
        async with running_server(chosen, address, embedder=embedder, **extra) as running:
            yield LiveServer(address=f"127.0.0.1:{running.port}", dsn=address, running=running)

    return start


@pytest.fixture
async def server(server_factory: ServerFactory) -> AsyncIterator[LiveServer]:
    """A server with an empty database and no API key: every local caller is its admin."""
    async with server_factory() as live:
        yield live
