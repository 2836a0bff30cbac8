"""Answers on standard output: tables on a terminal, tab-separated lines in a pipe, JSON on demand."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final
from unicodedata import category

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table
from rich.text import Text

_LAYOUT_CHARACTERS: Final = "\n\t"
_BIDI_CONTROLS: Final = frozenset(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
_RIGHT_ALIGNED: Final = frozenset({"#", "score", "worth", "rev", "hops", "weight", "strength"})


def print_json(value: Message | Sequence[Message] | dict[str, Any]) -> None:
    """Print one JSON document: a message as an object, several as an array, with the contract's field names.

    Fields without a value are there too, but for messages and optional numbers.
    """
    if isinstance(value, Message):
        document: Any = as_dict(value)
    elif isinstance(value, dict):
        document = value
    else:
        document = [as_dict(message) for message in value]
    print(json.dumps(document, ensure_ascii=False, indent=2))


def as_dict(message: Message) -> dict[str, Any]:
    """The message as protobuf JSON has it."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def print_rows(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows, whose last column is prose.

    On a terminal it is a table that fits the width, and prose wraps. Elsewhere it is one line a row, with tabs between
    the columns, without headings, and with blanks for what would break the line.
    """
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(" ".join(clean(cell).split()) for cell in row))
        return
    table = Table(box=None, header_style="dim", pad_edge=False, expand=False)
    for heading in headings[:-1]:
        table.add_column(heading, no_wrap=True, justify="right" if heading in _RIGHT_ALIGNED else "left")
    table.add_column(headings[-1], overflow="fold", ratio=1)
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    Console().print(table)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values one below the other; values of several lines or words wrap on a terminal."""
    if not sys.stdout.isatty():
        for name, value in fields:
            print(f"{name}\t{' '.join(clean(value).split())}")
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for name, value in fields:
        table.add_row(name, Text(clean(value)))
    Console().print(table)


def note(text: str) -> None:
    """Say something about the answer on standard error, where it does not disturb a pipe."""
    print(clean(text), file=sys.stderr)


def clean(text: str) -> str:
    """The text without what could drive the terminal: control characters, and those that reorder a line."""
    return "".join("\N{REPLACEMENT CHARACTER}" if _drives_terminal(character) else character for character in text)


def _drives_terminal(character: str) -> bool:
    if character in _LAYOUT_CHARACTERS:
        return False
    return category(character) == "Cc" or character in _BIDI_CONTROLS
