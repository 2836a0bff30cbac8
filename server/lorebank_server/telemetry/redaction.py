"""What keeps memory text and credentials out of the logs.

The first rule is not to log them. These processors are the second wall: they judge keys by their names, mask
credentials within addresses, and render exceptions without local variables and without messages that quote rows.
"""

import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final

import asyncpg
from structlog.typing import EventDict, WrappedLogger

REDACTED: Final = "[redacted]"

_PRIVATE_KEY: Final = re.compile(
    r"(?:^|[^a-z0-9])(?:content|text|query|queries|vector|embeddings?$|authorization|secret|token|password|passwd"
    r"|credential|cookie|api[^a-z0-9]?key|database[^a-z0-9]?url|dsn)s?(?:[^a-z0-9]|$)",
    re.IGNORECASE,
)
_CREDENTIAL_IN_ADDRESS: Final = re.compile(r"(?<=://)[^/\s@]*:[^\s@]*(?=@)")

# Classes of SQLSTATE whose messages name objects and circumstances of the server, never values of rows.
_QUOTING_NOTHING: Final = frozenset({"08", "28", "3D", "3F", "40", "42", "53", "55", "57", "58"})

_DEEPEST_CHAIN: Final = 10


def without_private_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace the values of keys that could hold memory text or a credential, at any depth of mappings.

    Numbers, flags and None stay: they are counts and sizes such as ``query_chars``.
    """
    return {key: _redacted(key, value) for key, value in event.items()}


def render_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Turn ``exc_info`` into the text ``exception``: frames, classes and harmless messages, no local variables."""
    given = event.pop("exc_info", None)
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        event["exception"] = "\n".join(_lines(error, _DEEPEST_CHAIN))
    return event


def describe_exception(error: BaseException) -> str:
    """Class and message of an exception on one line, the message withheld where it could quote a row."""
    name = type(error).__qualname__
    message = str(error)
    if isinstance(error, asyncpg.PostgresError):
        # Its own str() would add the detail, which quotes keys.
        quotes = (error.sqlstate or "")[:2] not in _QUOTING_NOTHING
        message = f"{'[message withheld]' if quotes else error.args[0]} {error.sqlstate}"
    elif isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        message = "[message withheld]"
    first_line = (message.splitlines() or [""])[0]
    return f"{name}: {first_line}" if first_line else name


def _redacted(key: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if _PRIVATE_KEY.search(key):
        return REDACTED
    if isinstance(value, Mapping):
        return {inner: _redacted(str(inner), held) for inner, held in value.items()}
    if isinstance(value, str):
        return _CREDENTIAL_IN_ADDRESS.sub("***", value)
    return value


def _lines(error: BaseException, depth: int) -> Iterator[str]:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and depth > 0:
        yield from _lines(cause, depth - 1)
        yield "which led to:"
    for frame in traceback.extract_tb(error.__traceback__):
        yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
    yield describe_exception(error)
    if isinstance(error, BaseExceptionGroup) and depth > 0:
        for position, held in enumerate(error.exceptions, start=1):
            yield f"of which number {position}:"
            yield from _lines(held, depth - 1)
