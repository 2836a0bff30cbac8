"""How long the caller of an operation still waits, for whoever has to divide that time; free of any transport."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_END: Final[ContextVar[float | None]] = ContextVar("lorebank_deadline", default=None)


@contextmanager
def answering_within(seconds: float | None) -> Iterator[None]:
    """Let what happens within the block know that the caller waits that long from now; None: without end."""
    token = _END.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _END.reset(token)


def share(part: float, *, most_s: float | None = None) -> float | None:
    """Seconds that one step may take, so that time is left to answer without it.

    Args:
        part: What the step gets of the time that is left, from 0 to 1.
        most_s: More than this it never gets; None: no such bound.

    Returns:
        The smaller of the two, at least 0; None when neither the caller nor ``most_s`` sets a bound.
    """
    end = _END.get()
    if end is None:
        return most_s
    left = part * max(0.0, end - time.monotonic())
    return left if most_s is None else min(left, most_s)
