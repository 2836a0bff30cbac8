"""Options that say something about a memory besides its text."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

from cyclopts import Group, Parameter

from lorebank._enums import KindName, PolarityName, ScopeName
from lorebank.cli.failures import UsageError
from lorebank.cli.selection import Tags, aware, split
from lorebank.v1.provenance_pb2 import Provenance

_MEMORY = Group("About the memory", sort_key=40)
_MOMENTS: Final = ("valid_from", "valid_until")
_LISTS: Final = {"tag": "tags", "keyword": "keywords"}
_PROVENANCE: Final = ("agent", "run", "conversation")


@Parameter(group=_MEMORY, negative=())
@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """What can be said of a memory, and corrected later.

    Attributes:
        title: Short headline.
        category: What it states, as slug or pack/slug, such as fact, preference or pattern.
        subject: Whom or what it is about.
        tag: Label; may be repeated, or given with commas between.
        keyword: Another word to be found by; may be repeated.
        context: Why it matters.
        collection: Where it is filed.
        kind: How it is used: semantic is a fact, procedural a way to do something, episodic what happened once.
        polarity: Whether it says what to do or what not to do.
        confidence: How sure you are, 0 to 1.
        utility: How much time it will save, 0 to 1.
        pinned: Exempt it from decay and pruning.
        valid_from: When it began to hold, such as 2026-03-01; local time unless a zone is written.
        valid_until: When it ceases to hold.
    """

    title: str | None = None
    category: str | None = None
    subject: str | None = None
    tag: Tags = ()
    keyword: tuple[str, ...] = ()
    context: str | None = None
    collection: str | None = None
    kind: KindName | None = None
    polarity: PolarityName | None = None
    confidence: float | None = None
    utility: float | None = None
    pinned: bool | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None


@Parameter(group=_MEMORY, negative=())
@dataclass(frozen=True, slots=True, kw_only=True)
class Authoring(Wording):
    """What can be said of a new memory.

    Attributes:
        scope: Who may see it: you, you in its project, everyone in its project, or everyone (by an admin).
        project: Project, app or repository that it belongs to.
        key: Name of your own to get it by.
        agent: Name of the agent or tool that wrote it.
        run: Run in which it was learned.
        conversation: Conversation in which it was learned.
    """

    scope: ScopeName | None = None
    project: str | None = None
    key: str | None = None
    agent: str | None = None
    run: str | None = None
    conversation: str | None = None


About: TypeAlias = Annotated[Authoring | None, Parameter(name="*")]
"""What a command says of a new memory, each field an option of its own; None when no option is given."""

Corrected: TypeAlias = Annotated[Wording | None, Parameter(name="*")]
"""What a command corrects, each field an option of its own; None when no option is given."""


def given(options: Wording | None) -> dict[str, Any]:
    """Fields of a memory, by name, that the options give; those left out are not there."""
    if options is None:
        return {}
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    present = {name: value for name, value in values.items() if value not in (None, ())}
    provenance = {name: present.pop(name) for name in _PROVENANCE if name in present}
    if "tag" in present:
        present["tag"] = split(present["tag"])
    memory = {_LISTS.get(name, name): aware(value) if name in _MOMENTS else value for name, value in present.items()}
    return memory | ({"provenance": Provenance(**provenance)} if provenance else {})


def links(values: tuple[str, ...]) -> list[tuple[str, str]]:
    """Relations written as ``type:target``.

    Raises:
        UsageError: One of them is written otherwise.
    """
    pairs = []
    for value in values:
        kind, separator, target = value.partition(":")
        if not (kind and separator and target):
            raise UsageError(f"{value!r} is no link: write type:id, such as related_to:a1B2c3D4.")
        pairs.append((kind, target))
    return pairs
