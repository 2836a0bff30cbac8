"""Signals as something to wait for, without threads and without an event loop."""

import select
import signal
import socket
import time
from contextlib import ExitStack
from types import FrameType
from typing import Self

HURRY_AFTER_S = 0.5
"""One Ctrl-C may arrive twice: from the terminal, and passed on by a wrapper such as a task runner."""
MAX_WAIT_S = 1.0
WAKEUP_READ_BYTES = 4096


class StopSignals:
    """While entered, notes SIGTERM, SIGINT and SIGHUP instead of dying of them; main thread only.

    SIGHUP stays ignored where it was (nohup). Handlers are put back on exit.
    """

    def __init__(self) -> None:
        self._first_time: float | None = None
        self._hurry = False
        self._restore = ExitStack()

    def stop_requested(self) -> bool:
        """Whether one of the signals arrived."""
        return self._first_time is not None

    def hurry_requested(self) -> bool:
        """Whether another one arrived, `HURRY_AFTER_S` or more after the first."""
        return self._hurry

    def wait(self, timeout_s: float) -> None:
        """Returns at the next signal, a child's death included, and after `MAX_WAIT_S` at the latest.

        A signal that arrived since the last call counts, so that nothing falls between a look and a wait.
        """
        select.select([self._reader], [], [], min(timeout_s, MAX_WAIT_S))
        try:
            self._reader.recv(WAKEUP_READ_BYTES)
        except BlockingIOError:
            return

    def __enter__(self) -> Self:
        with ExitStack() as restore:
            self._reader, writer = map(restore.enter_context, socket.socketpair())
            self._reader.setblocking(False)
            writer.setblocking(False)
            previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            restore.callback(signal.set_wakeup_fd, previous_fd)
            handlers = {signal.SIGTERM: self._note, signal.SIGINT: self._note, signal.SIGCHLD: _wake_only}
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                handlers[signal.SIGHUP] = self._note
            for number, handler in handlers.items():
                restore.callback(signal.signal, number, signal.signal(number, handler))
            self._restore = restore.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore.close()

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_time is None:
            self._first_time = now
        elif now - self._first_time >= HURRY_AFTER_S:
            self._hurry = True


def _wake_only(_number: int, _frame: FrameType | None) -> None:
    """A handler must exist for the wake-up to be written."""
