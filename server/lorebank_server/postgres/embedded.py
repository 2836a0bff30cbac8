"""A Postgres of our own, from a wheel: one data folder, one owner, no network, no survivor.

    with embedded.start(Path("data")) as postgres:
        await asyncpg.connect(postgres.dsn)

Postgres is a direct child. On Linux it stops when its owner dies, even by SIGKILL; whatever an owner
left all the same is ended by the next one, which the lock of the data folder makes safe.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self
from urllib.parse import quote

from lorebank_server.postgres.cluster import (
    DATABASE,
    ENVIRONMENT,
    PORT,
    PRIVATE_UMASK,
    SETTINGS,
    SUPERUSER,
    ensure_cluster,
    ensure_database,
    log_tail,
)
from lorebank_server.postgres.data_directory import DataDirectory
from lorebank_server.postgres.embedded_binaries import programs_folder
from lorebank_server.postgres.embedded_errors import PostgresStartError, StartInterruptedError
from lorebank_server.postgres.orphans import POSTMASTER_PID_FILE, end_orphans
from lorebank_server.postgres.process_guard import spawn

START_TIMEOUT_S = 60.0
FAST_STOP_TIMEOUT_S = 20.0
QUICK_STOP_TIMEOUT_S = 5.0
POLL_S = 0.01
STATUS_LINE = 7
SHARED_MEMORY_IN_USE = "pre-existing shared memory block"
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def never() -> bool:
    """Does not give up: the default of everything here that can be hurried."""
    return False


class EmbeddedPostgres:
    """A serving Postgres and the data folder it owns; made by `start`, a context manager that stops it.

    Not for use by several threads, and for the main thread only: the kernel ties the child to the
    thread that started it.

    Attributes:
        dsn: For asyncpg and libpq, as superuser `lorebank`, over the socket; the same for life.
        data_dir: Absolute path of the data folder.
    """

    def __init__(self, directory: DataDirectory, *, settings: Mapping[str, str], start_timeout_s: float) -> None:
        self._directory = directory
        self._settings = {**SETTINGS, **settings}
        self._start_timeout_s = start_timeout_s
        self._programs = programs_folder(directory.path, directory.account)
        self._socket_folder = directory.socket_folder()
        self._process: subprocess.Popen[bytes] | None = None
        self._released = False
        self.data_dir = directory.path
        host = quote(str(self._socket_folder), safe="")
        self.dsn = f"postgresql://{SUPERUSER}@/{DATABASE}?host={host}&port={PORT}"

    @property
    def pid(self) -> int:
        """The postmaster's pid; the last one's when it is not running, 0 before the first."""
        return 0 if self._process is None else self._process.pid

    def is_running(self) -> bool:
        """Whether the postmaster lives; never waits."""
        return self._process is not None and self._process.poll() is None

    def launch(self, *, interrupted: Callable[[], bool] = never) -> None:
        """Starts Postgres in the data folder, again after a crash, and waits until it serves.

        Ends what a killed postmaster left first. Does nothing while Postgres runs.

        Args:
            interrupted: Polled while waiting; true gives up.

        Raises:
            PostgresStartError: It ended or did not serve in time; the message ends with what it said.
            StartInterruptedError: `interrupted` said so.
        """
        if self.is_running():
            return
        deadline = time.monotonic() + self._start_timeout_s
        self._directory.start_log.write_bytes(b"")
        end_orphans(self._directory.cluster)
        ensure_cluster(self._directory, self._programs)
        try:
            while not self._try_to_serve(deadline, interrupted):
                end_orphans(self._directory.cluster)
            ensure_database(self._directory, self._programs, self._socket_folder)
        except BaseException:
            self._end(interrupted)
            raise

    def stop(self, *, hurried: Callable[[], bool] = never) -> None:
        """Stops Postgres cleanly, by force where that takes too long, and gives up the data folder.

        Idempotent. Clients are disconnected.

        Args:
            hurried: Polled while waiting; true skips the clean shutdown (the next start recovers).
        """
        if self._released:
            return
        self._released = True
        try:
            self._end(hurried)
        finally:
            self._directory.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _try_to_serve(self, deadline: float, interrupted: Callable[[], bool]) -> bool:
        """True once Postgres serves; false when a dead one's backends still hold its shared memory."""
        log_sizes = {path: path.stat().st_size for path in self._directory.log_folder.iterdir()}
        self._process = process = self._spawn()
        while not self._says_ready(process.pid):
            if process.poll() is not None:
                said = self._said_since(log_sizes)
                if SHARED_MEMORY_IN_USE in said and time.monotonic() < deadline:
                    return False
                raise PostgresStartError(f"Postgres ended at start ({process.returncode}):\n{said}")
            if interrupted():
                raise StartInterruptedError("Gave up while Postgres was starting.")
            if time.monotonic() > deadline:
                said = self._said_since(log_sizes)
                raise PostgresStartError(f"Postgres did not serve in {self._start_timeout_s:.0f} s:\n{said}")
            time.sleep(POLL_S)
        return True

    def _spawn(self) -> "subprocess.Popen[bytes]":
        quoted_socket_folder = str(self._socket_folder).replace('"', '""')
        settings = {
            **self._settings,
            "log_directory": str(self._directory.log_folder),
            "unix_socket_directories": f'"{quoted_socket_folder}"',
        }
        options = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        try:
            with self._directory.start_log.open("ab") as output:
                return spawn(
                    [str(self._programs / "postgres"), "-D", str(self._directory.cluster), *options],
                    death_signal=signal.SIGQUIT,
                    env=ENVIRONMENT,
                    account=self._directory.account,
                    output=output,
                    cwd="/",
                    umask=PRIVATE_UMASK,
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise PostgresStartError(f"Postgres cannot be run: {error}") from error

    def _says_ready(self, pid: int) -> bool:
        """Whether the pid file names this very child, not one that was there before, as ready."""
        try:
            lines = (self._directory.cluster / POSTMASTER_PID_FILE).read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > STATUS_LINE and lines[0] == str(pid) and lines[STATUS_LINE].strip() == "ready"

    def _said_since(self, log_sizes: Mapping[Path, int]) -> str:
        """What Postgres said in this start: before it opened its log file, and in that file."""
        logs = sorted(self._directory.log_folder.iterdir(), key=lambda path: path.stat().st_mtime)
        parts = [log_tail(self._directory.start_log)]
        parts += [log_tail(path, offset=log_sizes.get(path, 0)) for path in logs[-1:]]
        return "\n".join(part for part in parts if part)

    def _end(self, hurried: Callable[[], bool]) -> None:
        if self._process is not None:
            for number, timeout_s, patience in (
                (signal.SIGINT, FAST_STOP_TIMEOUT_S, hurried),
                (signal.SIGQUIT, QUICK_STOP_TIMEOUT_S, never),
            ):
                if not patience():
                    self._process.send_signal(number)
                    _wait(self._process, timeout_s, patience)
            self._process.kill()
            self._process.wait()
        end_orphans(self._directory.cluster)


def start(
    data_dir: Path,
    run_as: str | None = None,
    *,
    settings: Mapping[str, str] = NO_SETTINGS,
    start_timeout_s: float = START_TIMEOUT_S,
    interrupted: Callable[[], bool] = never,
) -> EmbeddedPostgres:
    """Takes a data folder, makes the cluster in it if there is none, and serves it.

    Call it from the main thread, before other threads exist where possible (it forks).

    Args:
        data_dir: Made if missing, closed to others; its parent must let Postgres' account through.
        run_as: The account to run Postgres under, for root only; None means the owner of the cluster
            that is there, else `postgres`, else `nobody`. Not root: always the current account.
        settings: Postgres settings that override ours, for example `{"fsync": "off"}` in tests.
        start_timeout_s: Until it must serve; recovery after a crash counts.
        interrupted: Polled while waiting; true gives up.

    Raises:
        DataDirectoryInUseError: Another process owns the folder.
        DataDirectoryUnusableError: The folder or the account will not do.
        PostgresStartError: Postgres did not start.
        StartInterruptedError: `interrupted` said so.
    """
    directory = DataDirectory.claim(data_dir, run_as)
    try:
        postgres = EmbeddedPostgres(directory, settings=settings, start_timeout_s=start_timeout_s)
        postgres.launch(interrupted=interrupted)
    except BaseException:
        directory.release()
        raise
    return postgres


def _wait(process: "subprocess.Popen[bytes]", timeout_s: float, hurried: Callable[[], bool]) -> None:
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline and not hurried():
        time.sleep(POLL_S)
