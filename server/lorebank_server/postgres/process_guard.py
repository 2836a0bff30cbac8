"""Children that do not outlive the process that started them."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from lorebank_server.postgres.os_account import OsAccount

PR_SET_PDEATHSIG = 1


def spawn(
    command: Sequence[str],
    *,
    death_signal: signal.Signals,
    env: Mapping[str, str],
    account: OsAccount | None = None,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    output: IO[bytes] | int | None = None,
    cwd: str | None = None,
    umask: int = -1,
) -> "subprocess.Popen[bytes]":
    """Starts a child that the kernel signals when this process dies, however it dies.

    The child gets a session of its own, so that Ctrl-C in a terminal reaches this process alone and
    the order of stopping stays here. No file descriptor is passed on but the three standard ones.
    Linux only: elsewhere the child is started the same way, but nothing signals it.

    Args:
        command: Absolute program and its arguments.
        death_signal: What the child receives when this process dies.
        env: The whole environment of the child.
        account: The account to change to, for which this process must be root; None changes nothing.
        stdin: Where the child reads from.
        output: Where its standard output and error go; None shares ours.
        cwd: The child's working folder; None keeps ours.
        umask: The child's file mode mask; -1 keeps ours.

    Raises:
        OSError: The program cannot be run, or not by that account.
        RuntimeError: Called outside the main thread: the kernel takes the end of the *thread* that
            started the child for the death of the parent.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a guarded child must be started from the main thread")
    # An account is changed before preexec_fn runs, as it must be: the change clears the death signal.
    return subprocess.Popen(
        list(command),
        stdin=stdin,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        env=dict(env),
        cwd=cwd,
        umask=umask,
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else [],
        start_new_session=True,
        preexec_fn=_death_guard(death_signal),  # noqa: PLW1509 - no other thread exists when it matters
    )


def _death_guard(death_signal: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    parent_pid = os.getpid()
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def guard() -> None:
        if prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(death_signal)) != 0:
            raise OSError(ctypes.get_errno(), "PR_SET_PDEATHSIG refused")
        if os.getppid() != parent_pid:  # it died before the kernel was asked to tell
            os._exit(1)

    return guard
