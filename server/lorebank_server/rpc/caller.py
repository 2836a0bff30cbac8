"""The principal of the call at hand: set by authentication, read by whatever comes after it in the same task."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from lorebank_server.domain.principal import Principal

_CALLER: Final[ContextVar[Principal]] = ContextVar("lorebank_caller")


@contextmanager
def called_by(principal: Principal) -> Iterator[None]:
    """Make ``principal`` the caller within the block."""
    token = _CALLER.set(principal)
    try:
        yield
    finally:
        _CALLER.reset(token)


def caller() -> Principal:
    """The principal of the call at hand.

    Raises:
        LookupError: The call was not authenticated, which is a fault of the server.
    """
    return _CALLER.get()
