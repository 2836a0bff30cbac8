"""Fields of the contract that this server does not honour yet: refused, because nothing sent is ever ignored.

Serving one of them means deleting its line from ``UNSUPPORTED``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from lorebank.v1 import find_pb2, graph_pb2, on_duplicate_pb2, read_pb2, space_pb2, store_pb2, vote_pb2, write_pb2
from lorebank_server.domain.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One field, by its path from the request.

    Attributes:
        values: The values that are not honoured; empty means none is.
        instead: What to do besides leaving it out, as a sentence; may be empty.
    """

    path: str
    values: frozenset[int | str] = frozenset()
    instead: str = ""


_DUPLICATES: Final[frozenset[int | str]] = frozenset(
    {
        on_duplicate_pb2.ON_DUPLICATE_SUGGEST,
        on_duplicate_pb2.ON_DUPLICATE_SKIP,
        on_duplicate_pb2.ON_DUPLICATE_MERGE,
        on_duplicate_pb2.ON_DUPLICATE_REPLACE,
    }
)
_SELECTOR: Final = (
    Unsupported("selector.entities"),
    Unsupported("selector.applicability"),
    Unsupported("selector.min_strength"),
)
_EXPIRY: Final = Unsupported("memory.expire_time", instead="Say in valid_until when the fact ceases to hold.")

UNSUPPORTED: Final[Mapping[type[Message], tuple[Unsupported, ...]]] = MappingProxyType(
    {
        store_pb2.StoreRequest: (
            Unsupported("on_duplicate", _DUPLICATES, instead="KEEP_BOTH is honoured."),
            Unsupported("similarity_threshold"),
            Unsupported("propose"),
            Unsupported("contexts", instead="Tags group memories too."),
            _EXPIRY,
        ),
        store_pb2.SupersedeRequest: (_EXPIRY,),
        write_pb2.UpdateMemoryRequest: (_EXPIRY,),
        find_pb2.FindRequest: (
            Unsupported("match"),
            Unsupported("expand_hops", instead="Walk the relations of a hit with Graph."),
            Unsupported("token_budget", instead="Bound the answer by limit and view."),
            Unsupported("as_of"),
            Unsupported("valid_at"),
            Unsupported("run"),
            *_SELECTOR,
        ),
        read_pb2.ListMemoriesRequest: (Unsupported("as_of"), *_SELECTOR),
        read_pb2.GetMemoryRequest: (Unsupported("as_of", instead="ListRevisions has the history."),),
        graph_pb2.GraphRequest: (
            Unsupported("entities", instead="Start from ids."),
            Unsupported("tags", instead="Start from ids; ListMemories selects by tags."),
            Unsupported("query", instead="Start from ids; Find has them."),
            Unsupported("selector"),
            Unsupported("valid_at"),
        ),
        vote_pb2.VoteRequest: (Unsupported("retrieval"),),
        space_pb2.CreateSpaceRequest: (
            Unsupported("space.quality_policy", frozenset({"swarm-v1"})),
            Unsupported("space.on_duplicate", _DUPLICATES),
            Unsupported("space.similarity_threshold"),
            Unsupported("space.review_agent_writes"),
            Unsupported("space.evolve"),
            Unsupported("space.delete_retention"),
            Unsupported("space.gate"),
            Unsupported("space.secrets"),
            Unsupported("space.personal_data"),
            Unsupported("space.untrusted_instructions"),
            Unsupported("space.agents_may_edit"),
            Unsupported("space.cite_only_shown"),
            Unsupported("space.prune"),
        ),
    }
)
"""What is refused, by the request that holds it."""


def refuse_unsupported(request: Message) -> None:
    """Refuse a request that sets a field of ``UNSUPPORTED``.

    Raises:
        InvalidArgumentError: With the reason FIELD_NOT_SUPPORTED and the path of the first such field.
    """
    for entry in UNSUPPORTED.get(type(request), ()):
        found = _value_at(request, entry.path.split("."))
        if found is not None and (not entry.values or found in entry.values):
            raise not_supported(entry)


def not_supported(entry: Unsupported) -> InvalidArgumentError:
    """The refusal of one field."""
    what = f"this value of {entry.path}" if entry.values else entry.path
    return InvalidArgumentError(
        f"This server does not honour {what}: leave it out. {entry.instead}".strip(),
        field=entry.path,
        reason="FIELD_NOT_SUPPORTED",
    )


def _value_at(message: Any, names: list[str]) -> Any:
    """The value at a path; None when it, or something on the way to it, is not set."""
    for name in names:
        field = message.DESCRIPTOR.fields_by_name[name]
        if not _is_set(message, field):
            return None
        message = getattr(message, name)
    return message


def _is_set(message: Message, field: FieldDescriptor) -> bool:
    if field.has_presence:
        return message.HasField(field.name)
    return bool(getattr(message, field.name))
