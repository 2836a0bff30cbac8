"""`lorebank serve` as seen from outside: one process that owns Postgres and the serving processes.

No threads and no event loop: the kernel ties all children to the thread that started them, and
forking is safe. Linux ends the children when this process is killed; on a clean stop the workers go
first, so that they can finish what they took on.
"""

import logging
import math
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from lorebank_server.postgres import embedded
from lorebank_server.postgres.embedded import EmbeddedPostgres
from lorebank_server.postgres.embedded_errors import PostgresStartError, StartInterruptedError
from lorebank_server.postgres.process_guard import spawn
from lorebank_server.stop_signals import StopSignals

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_CONFIGURATION = 78
"""EX_CONFIG of sysexits.h: a worker that ends with it would do so again."""

WORKER_GRACE_S = 30.0
RECOVERY_TIMEOUT_S = 600.0
"""Replaying a full write-ahead log takes minutes on a slow disk, and cutting it short starts it over."""

MAX_RESTARTS = 5
RESTART_WINDOW_S = 60.0
FIRST_BACKOFF_S = 0.2
ONE_WORKER: Sequence[Mapping[str, str]] = ({},)

_log = logging.getLogger("lorebank.supervisor")


def supervise(
    *,
    data_dir: Path | None,
    database_url: str | None,
    worker_command: Sequence[str],
    env: Mapping[str, str],
    worker_variables: Sequence[Mapping[str, str]] = ONE_WORKER,
    run_as: str | None = None,
    postgres_settings: Mapping[str, str] = embedded.NO_SETTINGS,
) -> int:
    """Runs the serving processes, and a Postgres for them where none is given, until told to stop.

    SIGTERM, SIGINT and SIGHUP stop the workers (30 s to drain, at the same time), then Postgres; a
    second one, half a second later or more, hurries them. What dies unasked is started again by itself,
    up to 5 times in 60 s each.
    Call it from the main thread, before other threads exist.

    Args:
        data_dir: Folder of the embedded Postgres; required unless `database_url` is given.
        database_url: A Postgres elsewhere; None embeds one.
        worker_command: A serving process: absolute program and arguments. Its environment is `env` plus
            `LOREBANK_DATABASE_URL` and `LOREBANK_SUPERVISED=1`.
        env: See `worker_command`.
        worker_variables: One entry for each serving process: what its environment has besides.
        run_as: The account for the embedded Postgres, see `embedded.start`.
        postgres_settings: For the embedded Postgres, see `embedded.start`.

    Returns:
        0 after a signal, 78 when the worker ended with 78, 1 when something kept dying.

    Raises:
        EmbeddedPostgresError: The first start of Postgres failed; nothing is left running.
        OSError: The worker's program cannot be run.
        ValueError: Neither a folder nor a URL is given.
    """
    with StopSignals() as signals, ExitStack() as stack:
        postgres: EmbeddedPostgres | None = None
        if database_url is None:
            if data_dir is None:
                raise ValueError("supervise needs a data folder or a database URL")
            try:
                postgres = embedded.start(
                    data_dir,
                    run_as,
                    settings=postgres_settings,
                    start_timeout_s=RECOVERY_TIMEOUT_S,
                    interrupted=signals.stop_requested,
                )
            except StartInterruptedError:
                return EXIT_STOPPED
            stack.callback(postgres.stop, hurried=signals.hurry_requested)
            _log.info("postgres_started pid=%d data_dir=%s", postgres.pid, postgres.data_dir)
            database_url = postgres.dsn
        common = {**env, "LOREBANK_DATABASE_URL": database_url, "LOREBANK_SUPERVISED": "1"}
        workers: list[_Worker] = []
        stack.callback(_stop, workers, signals)
        for variables in worker_variables:
            workers.append(_Worker(worker_command, {**common, **variables}))  # noqa: PERF401 - stopped if the next fails
        return _watch(workers, postgres, signals)


class _TooManyRestartsError(Exception):
    pass


class _Restarts:
    """When to start again what was found dead: at once, then ever later, then no more."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self._due_time: float | None = None

    def due(self, now: float) -> bool:
        """Asked while the thing is dead: true when it is time to start it.

        Raises:
            _TooManyRestartsError: It died again after `MAX_RESTARTS` restarts in `RESTART_WINDOW_S`.
        """
        if self._due_time is None:
            while self._times and now - self._times[0] > RESTART_WINDOW_S:
                self._times.popleft()
            if len(self._times) >= MAX_RESTARTS:
                raise _TooManyRestartsError
            backoff_s = FIRST_BACKOFF_S * 2 ** (len(self._times) - 1) if self._times else 0.0
            self._times.append(now)
            self._due_time = now + backoff_s
        if now < self._due_time:
            return False
        self._due_time = None
        return True

    def wait_s(self, now: float) -> float:
        """How long until `due` may turn true; endless when nothing is known to be dead."""
        return math.inf if self._due_time is None else max(0.0, self._due_time - now)


class _Worker:
    """A serving process, and when it is due again after it died.

    Attributes:
        restarts: Its own: one that keeps dying does not use up what others may need.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.restarts = _Restarts()
        self._command = command
        self._env = env
        self._process = self._spawn()

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return self._process.poll()

    def restart(self) -> None:
        self._process = self._spawn()

    def terminate(self) -> None:
        """Asks it to drain and end; nothing happens to one that is dead."""
        self._process.terminate()

    def bury(self) -> None:
        """Kills it if it lives; returns once it is gone."""
        self._process.kill()
        code = self._process.wait()
        _log.info("worker_stopped pid=%d code=%d", self._process.pid, code)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        process = spawn(self._command, death_signal=signal.SIGKILL, env=self._env)
        _log.info("worker_started pid=%d", process.pid)
        return process


def _stop(workers: Sequence[_Worker], signals: StopSignals) -> None:
    """Lets all drain at the same time, then kills what is left; returns once they are gone."""
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + WORKER_GRACE_S
    while any(worker.exit_code() is None for worker in workers):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or signals.hurry_requested():
            break
        signals.wait(left_s)
    for worker in workers:
        worker.bury()


def _watch(workers: Sequence[_Worker], postgres: EmbeddedPostgres | None, signals: StopSignals) -> int:
    """Keeps all alive; returns the exit code when it is time to stop them."""
    postgres_restarts = _Restarts()
    while not signals.stop_requested():
        now = time.monotonic()
        codes = [worker.exit_code() for worker in workers]
        if EXIT_CONFIGURATION in codes:
            _log.error("worker_refused code=%d", EXIT_CONFIGURATION)
            return EXIT_CONFIGURATION
        try:
            if postgres is not None and not postgres.is_running() and postgres_restarts.due(now):
                _restart_postgres(postgres, signals)
            for worker, code in zip(workers, codes, strict=True):
                if code is not None and worker.restarts.due(now):
                    _log.warning("worker_died pid=%d code=%d", worker.pid, code)
                    worker.restart()
        except _TooManyRestartsError:
            _log.error("too_many_restarts limit=%d window_s=%d", MAX_RESTARTS, RESTART_WINDOW_S)
            return EXIT_FAILED
        _reap_adopted({0 if postgres is None else postgres.pid, *(worker.pid for worker in workers)})
        signals.wait(min(restarts.wait_s(now) for restarts in (postgres_restarts, *(w.restarts for w in workers))))
    return EXIT_STOPPED


def _restart_postgres(postgres: EmbeddedPostgres, signals: StopSignals) -> None:
    _log.warning("postgres_died pid=%d", postgres.pid)
    try:
        postgres.launch(interrupted=signals.stop_requested)
    except StartInterruptedError:
        return
    except PostgresStartError as error:
        _log.error("postgres_restart_failed error=%s", error)
        return
    _log.info("postgres_started pid=%d data_dir=%s", postgres.pid, postgres.data_dir)


def _reap_adopted(own_pids: set[int]) -> None:
    """Buries the dead that became ours by adoption, as they do in a container's first process.

    Our own dead are left to whoever asks for their exit codes; the next round sees what they hid.
    """
    while hasattr(os, "waitid"):
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid in own_pids:
            return
        os.waitpid(dead.si_pid, os.WNOHANG)
