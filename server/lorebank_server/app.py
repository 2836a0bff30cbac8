"""The server's commands, as functions that return exit codes."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lorebank_server.config import ConfigurationError, LoadedSettings, Settings, load_settings
from lorebank_server.config_reference import describe
from lorebank_server.domain.errors import LorebankError
from lorebank_server.domain.keys import ApiKey
from lorebank_server.domain.principal import OPERATOR_SPACE, Principal, Role
from lorebank_server.postgres import embedded
from lorebank_server.postgres.embedded_errors import EmbeddedPostgresError
from lorebank_server.supervisor import supervise
from lorebank_server.telemetry.logging import configure_logging
from lorebank_server.worker_plan import worker_plan

EXIT_REFUSED = 78


def serve_command() -> int:
    """Own Postgres (unless the settings name one) and a serving process, until told to stop."""

    def serve(settings: Settings) -> int:
        configure_logging(settings.log_level, settings.log_format)
        with worker_plan(settings) as workers:
            return supervise(
                data_dir=None if settings.database_url else settings.data_dir,
                database_url=settings.database_url.get_secret_value() if settings.database_url else None,
                worker_command=[sys.executable, "-m", "lorebank_server.worker"],
                env=os.environ.copy(),
                worker_variables=workers.variables,
                run_as=settings.postgres_user,
                postgres_settings=workers.postgres_settings,
            )

    return _with_settings(serve)


def worker_command() -> int:
    """Serve in this process, on the database that the supervisor names."""
    from lorebank_server.serving import run_worker  # noqa: PLC0415 - loads the model's runtime

    def work(settings: Settings) -> int:
        if settings.database_url is None:
            raise ConfigurationError("The serving process is started by 'lorebank serve'; run that instead.")
        return run_worker(settings, settings.database_url.get_secret_value())

    return _with_settings(work)


def config_command(*, as_json: bool = False) -> int:
    """Print every setting with its value, default, source and meaning."""
    try:
        rows = describe(load_settings())
    except ConfigurationError as error:
        return _refuse(str(error))
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    table = Table("setting", "value", "default", "source", "meaning", box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in (row.name, row.value, row.default, row.source, row.meaning)))
    Console().print(table)
    return 0


def migrate_command() -> int:
    """Bring the database to this server's schema."""
    from lorebank_server.operations.spaces import default_space  # noqa: PLC0415
    from lorebank_server.postgres.migrate import migrate  # noqa: PLC0415

    def apply(_: Settings, dsn: str) -> int:
        applied = asyncio.run(migrate(dsn, first_space=default_space(OPERATOR_SPACE)))
        for migration in applied:
            print(f"applied {migration.number:04d} {migration.name}")
        if not applied:
            print("The schema is up to date.")
        return 0

    return _with_database(apply)


def reindex_command() -> int:
    """Embed every memory that has no vector of the model that the settings name."""
    from lorebank_server.embedding import create_embedder  # noqa: PLC0415
    from lorebank_server.embedding_backend import embedding_spec  # noqa: PLC0415
    from lorebank_server.operations.spaces import default_space  # noqa: PLC0415
    from lorebank_server.postgres.embedding_models import reindex  # noqa: PLC0415
    from lorebank_server.postgres.migrate import migrate  # noqa: PLC0415

    def show(done: int, total: int) -> None:
        print(f"\rembedded {done} of {total}", end="", file=sys.stderr, flush=True)

    async def embed_all(settings: Settings, dsn: str) -> int:
        await migrate(dsn, first_space=default_space(OPERATOR_SPACE))
        embedder = await create_embedder(embedding_spec(settings))
        try:
            return await reindex(dsn, embedder, progress=show)
        finally:
            await embedder.aclose()

    def apply(settings: Settings, dsn: str) -> int:
        done = asyncio.run(embed_all(settings, dsn))
        print(file=sys.stderr)
        print(f"Embedded {done} memories.")
        return 0

    return _with_database(apply)


def bench_command(**options: Any) -> int:
    """Measure Find; the options are those of ``bench.command.bench``."""
    from lorebank_server.bench.command import bench  # noqa: PLC0415 - loads the model's runtime

    return bench(**options)


def create_key_command(*, owner: str, role: str, space: str = OPERATOR_SPACE, project: str = "", name: str = "") -> int:
    """Create an API key straight in the database, for a server that nobody can call yet."""

    def apply(_: Settings, dsn: str) -> int:
        key, secret = asyncio.run(_create_key(dsn, owner=owner, role=role, space=space, project=project, name=name))
        print(f"id      {key.id}\nsecret  {secret}\nThe secret is shown this once; keep it safe.")
        return 0

    return _with_database(apply)


async def _create_key(dsn: str, *, owner: str, role: str, space: str, project: str, name: str) -> tuple[ApiKey, str]:
    from lorebank_server.operations.keys import issue_key  # noqa: PLC0415
    from lorebank_server.operations.spaces import default_space  # noqa: PLC0415
    from lorebank_server.postgres.administration import PostgresAdministration  # noqa: PLC0415
    from lorebank_server.postgres.migrate import migrate  # noqa: PLC0415
    from lorebank_server.postgres.pool import open_pool  # noqa: PLC0415

    await migrate(dsn, first_space=default_space(OPERATOR_SPACE))
    pool = await open_pool(dsn, size=1)
    try:
        operator = Principal(space_id=0, space=OPERATOR_SPACE, owner="operator", role=Role.ADMIN)
        wanted = ApiKey(
            id="",
            display_name=name,
            owner=owner,
            roles=(Role[role.upper()],),
            project=project,
            create_time=datetime.now(UTC),
        )
        return await issue_key(PostgresAdministration(pool), operator, space, wanted, now=datetime.now(UTC))
    finally:
        await pool.close()


def _with_settings(command: Callable[[Settings], int]) -> int:
    try:
        loaded: LoadedSettings = load_settings()
        return command(loaded.settings)
    except (ConfigurationError, EmbeddedPostgresError) as error:
        return _refuse(str(error))
    except LorebankError as error:
        return _refuse(error.message)


def _with_database(command: Callable[[Settings, str], int]) -> int:
    def work(settings: Settings) -> int:
        with _database(settings) as dsn:
            return command(settings, dsn)

    return _with_settings(work)


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    with embedded.start(settings.data_dir, run_as=settings.postgres_user) as postgres:
        yield postgres.dsn


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return EXIT_REFUSED
