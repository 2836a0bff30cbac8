"""Postgres processes that a killed owner left behind in a cluster.

Only for the owner of the data folder's lock: whatever still runs in the cluster then has no owner.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lorebank_server.postgres.embedded_errors import PostgresStartError

POSTMASTER_PID_FILE = "postmaster.pid"
PROGRAM_NAME = "postgres"
LEAVE_TIMEOUT_S = 1.0
"""Usually they are leaving already: their owner's death signalled them."""
QUIT_TIMEOUT_S = 5.0
KILL_TIMEOUT_S = 10.0
POLL_S = 0.02


def end_orphans(cluster: Path) -> None:
    """Waits for, then quits, then kills every Postgres process in `cluster`; removes a stale pid file.

    Postgres takes a zombie, or any process of the same account that got the old pid, for a live
    server and refuses to start; with the pid file gone it cannot.

    Raises:
        PostgresStartError: A process survived SIGKILL.
    """
    if not _wait_until(lambda: not running_in(cluster), LEAVE_TIMEOUT_S):
        _signal_all(cluster, signal.SIGQUIT)
        if not _wait_until(lambda: not running_in(cluster), QUIT_TIMEOUT_S):
            _signal_all(cluster, signal.SIGKILL)
            if not _wait_until(lambda: not running_in(cluster), KILL_TIMEOUT_S):
                left = ", ".join(map(str, running_in(cluster)))
                raise PostgresStartError(f"Processes {left} of an earlier Postgres in {cluster} do not end.")
    (cluster / POSTMASTER_PID_FILE).unlink(missing_ok=True)


def running_in(cluster: Path) -> list[int]:
    """Pids of the live Postgres processes whose data folder is `cluster`; zombies do not count.

    On Linux all of them, postmaster or not, known by their working folder. Elsewhere the postmaster
    alone, known by its pid file and command line.
    """
    if not cluster.is_dir():
        return []
    if sys.platform == "linux":
        return [int(entry.name) for entry in Path("/proc").iterdir() if _works_in(entry, cluster)]
    return _postmaster_by_command(cluster)


def _works_in(process: Path, cluster: Path) -> bool:
    if not process.name.isdecimal():
        return False
    try:
        is_postgres = (process / "comm").read_text().strip() == PROGRAM_NAME
        return is_postgres and (process / "cwd").samefile(cluster)
    except OSError:  # ended meanwhile, a zombie, or somebody else's
        return False


def _postmaster_by_command(cluster: Path) -> list[int]:
    try:
        pid = int((cluster / POSTMASTER_PID_FILE).read_text().partition("\n")[0])
    except (OSError, ValueError):
        return []
    ps = ("/bin/ps", "-o", "command=", "-p", str(pid))
    command = subprocess.run(ps, capture_output=True, text=True, check=False).stdout
    return [pid] if PROGRAM_NAME in command and f"-D {cluster} " in command else []


def _signal_all(cluster: Path, number: signal.Signals) -> None:
    for pid in running_in(cluster):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
