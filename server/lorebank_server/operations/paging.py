"""Page tokens: opaque to the caller, bound to the query they continue."""

import base64
import binascii
import json
from typing import Any

from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.fingerprints import digest

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 500


def page_size(requested: int) -> int:
    """The size in force: 0 means the default, more than the maximum means the maximum.

    Raises:
        InvalidArgumentError: It is negative.
    """
    if requested < 0:
        raise InvalidArgumentError("page_size must not be negative.", field="page_size")
    return min(requested or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def encode(position: dict[str, Any], *, query: Any) -> str:
    """A token that continues ``query`` (a JSON value) at ``position``."""
    sealed = {"q": _mark(query), "s": _mark([query, position]), **position}
    text = json.dumps(sealed, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(token: str, *, query: Any) -> dict[str, Any] | None:
    """The position in a token, or None for the empty token of a first page.

    Raises:
        InvalidArgumentError: It is no token, one that was changed, or one of another query.
    """
    if not token:
        return None
    try:
        position = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        continues, seal = position.pop("q"), position.pop("s")
        intact = seal == _mark([query, position])
    except (binascii.Error, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise _refused("is not one that this server gave") from None
    if continues != _mark(query):
        raise _refused("belongs to another query")
    if not intact:
        raise _refused("is not one that this server gave")
    return dict(position)


def _mark(value: Any) -> str:
    return digest(value)[:16]


def _refused(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"page_token {why}: repeat the request it came from unchanged, or begin again without a token.",
        field="page_token",
        reason="INVALID_PAGE_TOKEN",
    )
