"""Work at the end of the process that must not keep it from ending."""

import threading
from collections.abc import Callable

import structlog

from lorebank_server.telemetry.redaction import describe_exception

_log = structlog.get_logger(__name__)


class BoundedWork:
    """Runs on a thread that dies with the process; ``wait`` says whether it ended in time.

    A failure is logged and counts as an end: there is nobody left to handle it.
    """

    def __init__(self, work: Callable[[], object], *, name: str) -> None:
        self._work = work
        self._name = name
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within ``timeout_s`` of this call; blocks until then."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - the outermost of this thread
            _log.warning("telemetry_not_sent", part=self._name, error=describe_exception(error))
