"""What no field of any request may hold, whatever it means: one walk over a message, with paths in its errors."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp

from lorebank_server.domain.errors import InvalidArgumentError

MIN_TIMESTAMP_S: Final = -62_135_596_800
"""The beginning of the year 1."""

MAX_TIMESTAMP_S: Final = 253_402_300_799
"""The last second of the year 9999."""

MAX_DURATION_S: Final = 315_576_000_000
"""10,000 years."""

CHECKED_ITEM_BY_ITEM: Final = frozenset({"lorebank.v1.BatchStoreRequest.requests"})
"""Fields left out of the walk, because an item that is at fault must not refuse the whole request."""

_MAX_NANOS: Final = 999_999_999
_SHOWN_KEY_CHARS: Final = 32
_JSON_MESSAGES: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})


def check_values(message: Message, *, path: str = "") -> None:
    """Refuse values that no field can mean.

    These are NUL characters, numbers that are not finite, enum numbers that the contract does not have, an
    unspecified value within a list, and times outside the years 1 to 9999.

    Args:
        message: The request, or a part of it.
        path: Path of that part within the request; empty for the request itself.

    Raises:
        InvalidArgumentError: With the path of the first such field, for example ``memory.card.evidence[0].text``.
    """
    for field, value in message.ListFields():
        shape = _shape(field)
        if shape.checked_elsewhere:
            continue
        where = path if shape.nameless else _joined(path, field.name)
        if shape.map_value is not None:
            _check_map(shape.map_value, value, where)
        elif shape.repeated:
            for position, entry in enumerate(value):
                at = f"{where}[{position}]"
                if shape.enum_names and entry == 0:
                    raise _refused(at, "is unspecified, which selects nothing; name a value or leave it out")
                _check_value(shape, entry, at)
        else:
            _check_value(shape, value, where)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the walk needs to know of a field, looked up once.

    Attributes:
        nameless: Inside free-form values, where the wire's own field names mean nothing to a caller.
        enum_names: Names by number; empty unless it is an enum.
        map_value: The field of a map's values; None unless it is a map, all of which have texts for keys.
    """

    kind: int
    repeated: bool
    checked_elsewhere: bool
    nameless: bool
    enum_names: Mapping[int, str]
    map_value: "_Shape | None"


@functools.cache
def _shape(field: FieldDescriptor) -> _Shape:
    inner = field.message_type
    is_map = inner is not None and inner.GetOptions().map_entry
    holder = field.containing_type
    return _Shape(
        kind=field.cpp_type,
        repeated=field.is_repeated,
        checked_elsewhere=field.full_name in CHECKED_ITEM_BY_ITEM,
        nameless=holder is not None and holder.full_name in _JSON_MESSAGES,
        enum_names={entry.number: entry.name for entry in field.enum_type.values} if field.enum_type else {},
        map_value=_shape(inner.fields_by_name["value"]) if inner is not None and is_map else None,
    )


def _check_map(shape: _Shape, entries: Any, where: str) -> None:
    for key, entry in entries.items():
        if "\x00" in key:
            raise _refused(where, "has a key with a NUL character, which no store can keep; remove it")
        _check_value(shape, entry, f"{where}[{key[:_SHOWN_KEY_CHARS]!r}]")


def _check_value(shape: _Shape, value: Any, where: str) -> None:
    if shape.kind == FieldDescriptor.CPPTYPE_STRING:
        if "\x00" in value:
            raise _refused(where, "contains a NUL character, which no store can keep; remove it")
    elif shape.kind == FieldDescriptor.CPPTYPE_ENUM:
        if value not in shape.enum_names:
            known = ", ".join(shape.enum_names.values())
            raise _refused(where, f"has the number {value}, which this server does not know; use one of {known}")
    elif shape.kind == FieldDescriptor.CPPTYPE_DOUBLE:
        if not isfinite(value):
            raise _refused(where, "must be a finite number")
    elif shape.kind == FieldDescriptor.CPPTYPE_MESSAGE:
        _check_message(value, where)


def _check_message(value: Any, where: str) -> None:
    if isinstance(value, Timestamp):
        if not (MIN_TIMESTAMP_S <= value.seconds <= MAX_TIMESTAMP_S and 0 <= value.nanos <= _MAX_NANOS):
            raise _refused(where, "must be a time in the years 1 to 9999, with nanos from 0 to 999,999,999")
    elif isinstance(value, Duration):
        same_sign = value.seconds * value.nanos >= 0
        if not (same_sign and abs(value.seconds) <= MAX_DURATION_S and abs(value.nanos) <= _MAX_NANOS):
            raise _refused(where, "must be a duration of at most 10,000 years, with seconds and nanos of one sign")
    elif isinstance(value, Value) and value.WhichOneof("kind") is None:
        raise _refused(where, "holds nothing at all; send null if that is what you mean")
    else:
        check_values(value, path=where)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _refused(field: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{field} {why}.", field=field)
