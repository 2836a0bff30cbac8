"""Making a cluster, and the settings it runs with."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from lorebank_server.postgres.data_directory import PRIVATE_MODE, DataDirectory
from lorebank_server.postgres.embedded_binaries import MAJOR_VERSION
from lorebank_server.postgres.embedded_errors import PostgresStartError
from lorebank_server.postgres.os_account import hand_over
from lorebank_server.postgres.process_guard import spawn

SUPERUSER = "lorebank"
DATABASE = "lorebank"
PORT = 5432
"""Names the socket file only: nothing listens on a network."""
INITDB_TIMEOUT_S = 120.0
PSQL_TIMEOUT_S = 60.0
PRIVATE_UMASK = 0o077
ENVIRONMENT: Mapping[str, str] = MappingProxyType({"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"})
"""All that Postgres gets: no PG* variable of ours misleads it, none of our secrets reach it."""

CLIENT_AUTHENTICATION = "# The socket's folder is private; whoever can open it may connect.\nlocal all all trust\n"
CREATE_DATABASE = (
    "SELECT 'CREATE DATABASE lorebank' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'lorebank') \\gexec\n"
)


def _shared_buffers_mb() -> int:
    """An eighth of what there is, because recall reads a thousand places for every question."""
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(128, min(2048, memory_mb // 8))


SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "autovacuum": "on",
        "fsync": "on",
        "jit": "off",
        "listen_addresses": "",
        "log_destination": "stderr",
        "log_error_verbosity": "terse",
        "log_filename": "postgresql-%a.log",
        "log_min_error_statement": "panic",
        "log_min_messages": "log",  # less than that are errors, whose text may quote a value
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_statement": "none",
        "log_timezone": "UTC",
        "log_truncate_on_rotation": "on",
        "logging_collector": "on",
        "max_connections": "60",
        "max_parallel_workers_per_gather": "0",
        "port": str(PORT),
        "shared_buffers": f"{_shared_buffers_mb()}MB",
        "timezone": "UTC",
        "unix_socket_permissions": "0700",
        "wal_compression": "off",  # the wheel is built without lz4
    }
)
"""No statement, parameter or row ever reaches the log: they are memory text."""


def ensure_cluster(directory: DataDirectory, programs: Path) -> None:
    """Initialises the cluster unless it exists; one that exists is complete.

    Raises:
        PostgresStartError: initdb failed, or the cluster was made by another major version.
    """
    try:
        version = (directory.cluster / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        _initialise(directory, programs)
        return
    if version != MAJOR_VERSION:
        raise PostgresStartError(
            f"The cluster in {directory.cluster} was made by Postgres {version}, and this is Postgres "
            f"{MAJOR_VERSION}. Dump it with the version that made it, then restore it into a new data folder."
        )
    hand_over(directory.cluster, directory.account)


def ensure_database(directory: DataDirectory, programs: Path, socket_folder: Path) -> None:
    """Creates the database `lorebank` unless it exists; the cluster must be serving.

    Raises:
        PostgresStartError: It could not be created.
    """
    psql = (str(programs / "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1")
    target = (f"--host={socket_folder}", f"--port={PORT}", f"--username={SUPERUSER}", "--dbname=postgres")
    run_program(directory, (*psql, *target), timeout_s=PSQL_TIMEOUT_S, script=CREATE_DATABASE)


def _initialise(directory: DataDirectory, programs: Path) -> None:
    partial = directory.partial_cluster()
    command = (
        str(programs / "initdb"),
        f"--pgdata={partial}",
        f"--username={SUPERUSER}",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--no-instructions",
    )
    run_program(directory, command, timeout_s=INITDB_TIMEOUT_S)
    (partial / "pg_hba.conf").write_text(CLIENT_AUTHENTICATION)
    partial.chmod(PRIVATE_MODE)
    directory.adopt(partial)


def run_program(directory: DataDirectory, command: tuple[str, ...], *, timeout_s: float, script: str = "") -> None:
    """Runs one of Postgres' programs to its end under Postgres' account, its output in `start.log`.

    Args:
        directory: Whose account and log.
        command: The program and its arguments.
        timeout_s: After that it is killed.
        script: What it reads.

    Raises:
        PostgresStartError: It failed, or took too long; the message ends with its output.
    """
    with tempfile.TemporaryFile() as stdin, directory.start_log.open("ab") as output:
        stdin.write(script.encode())
        stdin.seek(0)
        try:
            process = spawn(
                command,
                death_signal=signal.SIGKILL,
                env=ENVIRONMENT,
                account=directory.account,
                stdin=stdin,
                output=output,
                cwd="/",
                umask=PRIVATE_UMASK,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise PostgresStartError(f"{command[0]} cannot be run: {error}") from error
        try:
            code = process.wait(timeout_s)
        except BaseException as error:
            process.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise PostgresStartError(f"{command[0]} took more than {timeout_s:.0f} s.") from error
            raise
    if code != 0:
        raise PostgresStartError(f"{command[0]} failed ({code}):\n{log_tail(directory.start_log)}")


def log_tail(path: Path, *, offset: int = 0, max_lines: int = 20) -> str:
    """The last lines of a log, from a byte offset on (from the start, if it has become shorter)."""
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(offset if offset <= size else 0)
        return "\n".join(log.read().decode(errors="replace").splitlines()[-max_lines:])
