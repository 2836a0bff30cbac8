"""Field masks: which paths a caller may change, and what naming one does."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from lorebank.v1 import memory_pb2, write_pb2
from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.memory import Draft
from lorebank_server.rpc.conversion.drafts import to_draft, write_draft

_SHOWN_PATH_CHARS: Final = 64

FIXED_FIELDS: Final = ("key", "scope", "project")
"""What a memory keeps for life: a mask that names one is refused, and so is another value without a mask."""

_WHOLE: Final = [
    "content",
    "title",
    "card",
    "context",
    "keywords",
    "kind",
    "polarity",
    "category",
    "collection",
    "subject",
    "tags",
    "attributes",
    "applicability",
    "provenance",
    "confidence",
    "utility",
    "pinned",
    "valid_from",
    "valid_until",
]
_PARTS: Final = {
    "card": [
        "summary",
        "when_to_use",
        "how_to_apply",
        "gotchas",
        "evidence",
        "outcome",
        "anti_pattern",
        "triage",
        "triage.symptoms",
        "triage.likely_causes",
        "triage.verification_steps",
        "triage.fix_steps",
        "triage.gotchas",
        "signals",
        "invariants",
    ],
    "applicability": ["repo", "package", "module", "runtime", "versions", "environment"],
    "provenance": ["origin", "author", "agent", "run", "conversation", "sources"],
}

CHANGEABLE_PATHS: Final = (*_WHOLE, *(f"{whole}.{part}" for whole, parts in _PARTS.items() for part in parts))
"""Paths of a memory that UpdateMemory changes."""


def to_edit(request: write_pb2.UpdateMemoryRequest) -> Callable[[Draft], Draft]:
    """The change that a request asks for, as a function of the draft it meets; it may run more than once.

    A path that is named and empty is cleared. Without a mask, every author's field that is not empty is taken over.

    Raises:
        InvalidArgumentError: A path is not one of ``CHANGEABLE_PATHS``, or there is nothing to change.
    """
    paths = list(request.update_mask.paths)
    for path in paths:
        if path in FIXED_FIELDS:
            raise InvalidArgumentError(
                f"update_mask names {path}, which a memory keeps for life: supersede it with a memory that has the "
                f"{path} you want.",
                field="update_mask",
                reason="IMMUTABLE_FIELD",
            )
        if path == "expire_time":
            raise InvalidArgumentError(
                "This server does not honour memory.expire_time: leave it out of update_mask.",
                field="update_mask",
                reason="FIELD_NOT_SUPPORTED",
            )
    check_paths(paths, allowed=CHANGEABLE_PATHS)
    if not paths:
        author_fields = {*_WHOLE, *FIXED_FIELDS}
        paths = [field.name for field, _ in request.memory.ListFields() if field.name in author_fields]
    if not paths:
        raise InvalidArgumentError(
            "There is nothing to change: set fields of memory, or name in update_mask those to be cleared.",
            field="memory",
        )
    changes = memory_pb2.Memory()
    changes.CopyFrom(request.memory)

    def edit(draft: Draft) -> Draft:
        edited = memory_pb2.Memory()
        write_draft(draft, edited)
        overwrite(edited, changes, paths)
        return to_draft(edited)

    return edit


def check_paths(paths: Iterable[str], *, allowed: Sequence[str]) -> None:
    """Refuse paths that are not ``allowed``.

    Raises:
        InvalidArgumentError: With the reason INVALID_FIELD_MASK, naming the path and those that are allowed.
    """
    for path in paths:
        if path not in allowed:
            raise InvalidArgumentError(
                f"update_mask names {path[:_SHOWN_PATH_CHARS]!r}, which cannot be changed. "
                f"Paths that can: {', '.join(allowed)}.",
                field="update_mask",
                reason="INVALID_FIELD_MASK",
                metadata={"path": path[:_SHOWN_PATH_CHARS]},
            )


def overwrite(target: Message, changes: Message, paths: Sequence[str]) -> None:
    """Give ``target`` the values that ``changes`` has at ``paths``, empty ones too."""
    source = type(changes)()
    source.CopyFrom(changes)
    for path in paths:
        # A part of an absent message is empty, and would otherwise be passed over instead of cleared.
        whole: Message = source
        for name in path.split(".")[:-1]:
            whole = getattr(whole, name)
            whole.SetInParent()
    FieldMask(paths=paths).MergeMessage(source, target, replace_message_field=True, replace_repeated_field=True)
