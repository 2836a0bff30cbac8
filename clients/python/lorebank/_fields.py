"""From keyword arguments to the messages of the contract."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias, TypedDict

from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from lorebank._enums import KindName, PolarityName, ScopeName, StateName, enum_number
from lorebank.v1.card_pb2 import Card
from lorebank.v1.memory_pb2 import Kind, Memory, Polarity, Scope, State
from lorebank.v1.provenance_pb2 import Applicability, Provenance
from lorebank.v1.selector_pb2 import Selector
from lorebank.v1.store_pb2 import StoreRequest

LinkLike: TypeAlias = StoreRequest.Link | tuple[str, str]
"""A relation from the new memory: a message, or ``(type, target id)``."""


class MemoryFields(TypedDict, total=False):
    """What an author may say about a memory besides its content; ``lorebank.v1.Memory`` explains each field."""

    title: str
    card: Card
    context: str
    keywords: Iterable[str]
    kind: KindName | int
    polarity: PolarityName | int
    category: str
    collection: str
    subject: str
    tags: Iterable[str]
    attributes: Mapping[str, Any]
    scope: ScopeName | int
    project: str
    key: str
    applicability: Applicability
    provenance: Provenance
    confidence: float
    utility: float
    pinned: bool
    valid_from: datetime
    valid_until: datetime
    expire_time: datetime


class Corrections(TypedDict, total=False):
    """What an update may change; None, or an empty value, clears the field."""

    content: str
    title: str | None
    card: Card | None
    context: str | None
    keywords: Iterable[str] | None
    kind: KindName | int | None
    polarity: PolarityName | int | None
    category: str | None
    collection: str | None
    subject: str | None
    tags: Iterable[str] | None
    attributes: Mapping[str, Any] | None
    applicability: Applicability | None
    provenance: Provenance | None
    confidence: float | None
    utility: float | None
    pinned: bool | None
    valid_from: datetime | None
    valid_until: datetime | None
    expire_time: datetime | None


class SelectorFields(TypedDict, total=False):
    """What narrows a read; ``lorebank.v1.Selector`` explains each field."""

    kinds: Iterable[KindName | int]
    categories: Iterable[str]
    collections: Iterable[str]
    tags_all: Iterable[str]
    tags_any: Iterable[str]
    subjects: Iterable[str]
    scopes: Iterable[ScopeName | int]
    project: str
    states: Iterable[StateName | int]
    entities: Iterable[str]
    agents: Iterable[str]
    runs: Iterable[str]
    owners: Iterable[str]
    applicability: Applicability
    created_after: datetime
    created_before: datetime
    min_strength: float
    include_stale: bool
    ids: Iterable[str]
    polarity: PolarityName | int


_ENUMS: Final[dict[str, Any]] = {"kind": Kind, "polarity": Polarity, "scope": Scope}
_ENUM_LISTS: Final[dict[str, Any]] = {"kinds": Kind, "scopes": Scope, "states": State}
_TEXT_LISTS: Final = frozenset(
    {"keywords", "tags", "categories", "collections", "tags_all", "tags_any", "subjects", "entities"}
    | {"agents", "runs", "owners", "ids"}
)


def new_memory(content: str, memory: Memory | None, fields: MemoryFields) -> Memory:
    """The memory to write, given as a message or as its parts; None among the parts counts as not given.

    Raises:
        TypeError: Both were given, or neither.
        ValueError: A value has no place in its field.
    """
    if memory is not None:
        if content or fields:
            raise TypeError("Give either memory, or content with its fields, not both.")
        return memory
    if not content:
        raise TypeError("Give the content, or a memory.")
    return Memory(content=content, **_values(fields))


def corrected_memory(memory_id: str, etag: str, corrections: Corrections) -> Memory:
    """The memory of an update, with the new values of what is not to be cleared."""
    return Memory(id=memory_id, etag=etag, **_values(corrections))


def new_selector(selector: Selector | None, fields: SelectorFields) -> Selector | None:
    """The selector, given as a message or as its parts; None when nothing narrows.

    Raises:
        TypeError: Both were given.
        ValueError: A value has no place in its field.
    """
    if selector is not None:
        if fields:
            raise TypeError("Give either selector or its fields, not both.")
        return selector
    values = _values(fields)
    return Selector(**values) if values else None


def new_link(link: LinkLike) -> StoreRequest.Link:
    """A relation from the memory that is being stored."""
    return link if isinstance(link, StoreRequest.Link) else StoreRequest.Link(type=link[0], target=link[1])


def timestamp(value: datetime) -> Timestamp:
    """The moment as a message.

    Raises:
        ValueError: The value names no time zone.
    """
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} names no time zone: use an aware datetime, such as one in UTC.")
    moment = Timestamp()
    moment.FromDatetime(value)
    return moment


def _values(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(name, value) for name, value in fields.items() if value is not None}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return timestamp(value)
    if name in _ENUMS:
        return enum_number(_ENUMS[name], value)
    if name in _ENUM_LISTS:
        return [enum_number(_ENUM_LISTS[name], entry) for entry in value]
    if name in _TEXT_LISTS:
        if isinstance(value, str):
            raise ValueError(f"{name} takes several texts: write [{value!r}].")
        return list(value)
    if name == "attributes":
        struct = Struct()
        struct.update(value)
        return struct
    return value
