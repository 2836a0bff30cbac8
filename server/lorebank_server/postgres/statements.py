"""Reads the named SQL blocks beside the repositories."""

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(file: str) -> dict[str, str]:
    """The blocks of ``queries/<file>.sql`` by name; a block begins with a line ``-- name: <name>``."""
    text = (resources.files(__package__) / "queries" / f"{file}.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}
