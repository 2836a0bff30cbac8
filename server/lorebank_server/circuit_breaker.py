"""A circuit breaker: a dependency that does not answer is left alone for a while, instead of waited for by everyone.

Closed, every call goes through. After ``MAX_FAILURES`` failures in a row it opens, and calls fail at once. After
``OPEN_S`` one call, the probe, goes through while the others still fail; its outcome closes the circuit or opens it
again.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

import structlog

MAX_FAILURES: Final = 5
"""Failures in a row that open the circuit: more than a restarted connection or one lost request explains."""

OPEN_S: Final = 5.0
"""How long nobody asks, in seconds: answers are whole again that long after an outage at most, and what it costs
meanwhile is one slow call in that time."""

SLOW_S: Final = 0.5
"""From when on a call that its caller gave up counts as failed, in seconds: slow is as good as away. A caller who
leaves before that says nothing about the dependency, or the most impatient would decide for all."""

State = Literal["closed", "open", "half-open"]

_log = structlog.get_logger(__name__)


class CircuitOpenError(Exception):
    """The dependency is left alone for now; nothing was asked of it."""


class CircuitBreaker:
    """Counts the calls of one process to one dependency; for one event loop."""

    def __init__(
        self,
        dependency: str,
        *,
        is_failure: Callable[[Exception], bool],
        max_failures: int = MAX_FAILURES,
        open_s: float = OPEN_S,
        slow_s: float = SLOW_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin closed.

        Args:
            dependency: What it is called in the log.
            is_failure: Whether an exception means that the dependency is away; any other one is an answer.
            max_failures: Failures in a row that open the circuit.
            open_s: Seconds until a probe is let through.
            slow_s: Seconds after which an abandoned call counts as failed.
            clock: Seconds that only grow.
        """
        self._dependency = dependency
        self._is_failure = is_failure
        self._max_failures = max_failures
        self._open_s = open_s
        self._slow_s = slow_s
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> State:
        """What a call would meet now; half-open means that it would be the probe, or waits for one under way."""
        if self._open_until is None:
            return "closed"
        return "open" if self._clock() < self._open_until else "half-open"

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Surround one call to the dependency; what it raises passes through.

        Raises:
            CircuitOpenError: It is not to be called now.
        """
        probe = self._admit()
        begun = self._clock()
        answered: bool | None = None
        try:
            yield
            answered = True
        except asyncio.CancelledError:
            answered = False if self._clock() - begun >= self._slow_s else None
            raise
        except Exception as error:
            answered = not self._is_failure(error)
            raise
        finally:
            if probe:
                self._probing = False
            if answered:
                self._close()
            elif answered is False:
                self._fail(probe=probe)

    def _admit(self) -> bool:
        """Let a call through, and say whether it is the probe."""
        if self._open_until is None:
            return False
        if self._probing or self._clock() < self._open_until:
            raise CircuitOpenError(self._dependency)
        self._probing = True
        return True

    def _close(self) -> None:
        self._failures = 0
        if self._open_until is not None:
            self._open_until = None
            _log.info("circuit_closed", dependency=self._dependency)

    def _fail(self, *, probe: bool) -> None:
        self._failures += 1
        if probe:
            self._open_until = self._clock() + self._open_s
        elif self._open_until is None and self._failures >= self._max_failures:
            self._open_until = self._clock() + self._open_s
            _log.warning("circuit_opened", dependency=self._dependency, failures=self._failures)
