"""The event loop that serves and measures."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end on uvloop, or on the standard loop where uvloop is not to be had."""
    try:
        import uvloop  # noqa: PLC0415 - not to be had on every platform
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
