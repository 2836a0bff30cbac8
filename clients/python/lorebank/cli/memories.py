"""Memories as people read them."""

from datetime import UTC, datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from lorebank._enums import enum_name
from lorebank.cli.output import print_fields, print_rows
from lorebank.v1.memory_pb2 import Kind, Memory, Polarity, Scope, State

_STEPS: Final = ((365 * 86_400, "y"), (30 * 86_400, "mo"), (86_400, "d"), (3_600, "h"), (60, "min"))


def age(moment: Timestamp) -> str:
    """How long ago a moment was, in its largest whole unit; "now" below a minute."""
    seconds = (datetime.now(UTC) - moment.ToDatetime(UTC)).total_seconds()
    for unit_s, name in _STEPS:
        if seconds >= unit_s:
            return f"{int(seconds // unit_s)} {name}"
    return "now"


def moment(value: Timestamp) -> str:
    """A moment in local time, to the second."""
    return value.ToDatetime(UTC).astimezone().isoformat(sep=" ", timespec="seconds")


def text_of(memory: Memory) -> str:
    """What a memory says: its title, where it has one, and its content."""
    return f"{memory.title}: {memory.content}" if memory.title else memory.content


def worth(memory: Memory) -> str:
    """Its strength in percent."""
    return f"{memory.quality.strength:.0%}"


def print_memories(memories: list[Memory]) -> None:
    """Print memories as rows of id, state, age, worth, category and text."""
    print_rows(
        ("id", "state", "age", "worth", "category", "text"),
        (
            (m.id, enum_name(State, m.state), age(m.create_time), worth(m), m.category or "-", text_of(m))
            for m in memories
        ),
    )


def print_memory(memory: Memory) -> None:
    """Print everything worth knowing about one memory, field by field; empty fields are left out."""
    print_fields((name, value) for name, value in _fields(memory) if value)


def _fields(memory: Memory) -> list[tuple[str, str]]:
    quality, card, source = memory.quality, memory.card, memory.provenance
    return [
        ("id", memory.id),
        ("content", memory.content),
        ("title", memory.title),
        ("context", memory.context),
        ("summary", card.summary),
        ("when to use", "\n".join(card.when_to_use)),
        ("how to apply", "\n".join(card.how_to_apply)),
        ("gotchas", "\n".join(card.gotchas)),
        ("state", enum_name(State, memory.state)),
        ("superseded by", memory.superseded_by),
        ("supersedes", ", ".join(memory.supersedes)),
        ("revision", f"{memory.revision} (etag {memory.etag})"),
        ("key", memory.key),
        ("category", memory.category),
        ("kind", enum_name(Kind, memory.kind)),
        ("polarity", enum_name(Polarity, memory.polarity)),
        ("subject", memory.subject),
        ("tags", ", ".join(memory.tags)),
        ("collection", memory.collection),
        ("scope", enum_name(Scope, memory.scope)),
        ("project", memory.project),
        ("owner", memory.owner),
        ("agent", source.agent),
        ("run", source.run),
        ("confidence", f"{memory.confidence:g}" if memory.HasField("confidence") else ""),
        (
            "worth",
            (
                f"{quality.strength:.0%} (reputation {quality.reputation:.2f}, retention {quality.retention:.2f}, "
                f"{quality.upvotes} up, {quality.downvotes} down, {quality.citations} cited, "
                f"{quality.successes} succeeded, {quality.failures} failed)"
            ),
        ),
        ("used", f"{memory.usage.use_count} times" if memory.usage.use_count else ""),
        *(
            (name.replace("_", " "), moment(getattr(memory, name)) if memory.HasField(name) else "")
            for name in ("valid_from", "valid_until", "create_time", "update_time", "delete_time")
        ),
    ]
