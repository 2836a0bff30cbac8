"""Options that narrow what a command reads."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeAlias

from cyclopts import Group, Parameter

from lorebank._enums import KindName, PolarityName, ScopeName, StateName
from lorebank._fields import SelectorFields, new_selector
from lorebank.v1.selector_pb2 import Selector

Tags: TypeAlias = Annotated[tuple[str, ...], Parameter(name=("--tag", "--tags"))]
"""Tags as options: one each, or several with commas between."""

_SELECTION = Group("Which memories", sort_key=50)


def split(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Every tag by itself, where several stand in one option with commas between."""
    return tuple(part.strip() for tag in tags for part in tag.split(",") if part.strip())


@Parameter(group=_SELECTION, negative=())
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which memories a command considers; options that may be repeated take any of their values.

    Attributes:
        project: Only this project.
        category: Only this category, as slug or pack/slug; may be repeated.
        tag: Only with this tag; with all of them when there are several, repeated or with commas between.
        any_tag: Only with at least one of these tags; may be repeated, or given with commas between.
        subject: Only about this subject; may be repeated.
        collection: Only in this collection; may be repeated.
        kind: Only of this kind; may be repeated.
        scope: Only of this scope; may be repeated.
        polarity: Only what to do, or only what not to do.
        state: Memories in this state instead of active ones; may be repeated.
        owner: Only of this owner; may be repeated.
        agent: Only written by this agent; may be repeated.
        run: Only learned in this run; may be repeated.
        created_after: Only created at or after this moment, such as 2026-03-01 or 2026-03-01T08:00:00+01:00.
        created_before: Only created before this moment.
        include_stale: Also those that have lost their worth.
    """

    project: str = ""
    category: tuple[str, ...] = ()
    tag: Tags = ()
    any_tag: tuple[str, ...] = ()
    subject: tuple[str, ...] = ()
    collection: tuple[str, ...] = ()
    kind: tuple[KindName, ...] = ()
    scope: tuple[ScopeName, ...] = ()
    polarity: PolarityName | None = None
    state: tuple[StateName, ...] = ()
    owner: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    include_stale: bool = False

    def selector(self) -> Selector | None:
        """The same as a message; None when nothing narrows."""
        fields = SelectorFields(
            project=self.project,
            categories=self.category,
            tags_all=split(self.tag),
            tags_any=split(self.any_tag),
            subjects=self.subject,
            collections=self.collection,
            kinds=self.kind,
            scopes=self.scope,
            states=self.state,
            owners=self.owner,
            agents=self.agent,
            runs=self.run,
            include_stale=self.include_stale,
        )
        if self.polarity:
            fields["polarity"] = self.polarity
        if self.created_after:
            fields["created_after"] = aware(self.created_after)
        if self.created_before:
            fields["created_before"] = aware(self.created_before)
        selector = new_selector(None, fields)
        return selector if selector != Selector() else None


Narrow: TypeAlias = Annotated[Selection | None, Parameter(name="*")]
"""The selection of a command, each field an option of its own; None when no option is given."""


def chosen(selection: Selection | None) -> Selector | None:
    """The selector of a command's options; None when nothing narrows."""
    return selection.selector() if selection else None


def aware(moment: datetime) -> datetime:
    """The moment with a time zone: this machine's where none was written."""
    return moment.astimezone() if moment.tzinfo is None else moment
