"""The one filter of every read, as values."""

from dataclasses import dataclass
from datetime import datetime

from lorebank_server.domain.memory import Kind, Polarity, Scope, State


@dataclass(frozen=True, slots=True)
class Selector:
    """Narrows what the caller may see; empty fields do not narrow.

    Attributes:
        categories: Full slugs (``pack/slug``).
        tags_all: Every one of them is on the memory.
        tags_any: At least one of them is on the memory.
        subjects: Once resolved, each as written and in lower case; a memory's own is compared in both forms.
        created_after: Inclusive.
        created_before: Exclusive.
    """

    kinds: tuple[Kind, ...] = ()
    categories: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_any: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ()
    project: str = ""
    states: tuple[State, ...] = (State.ACTIVE,)
    agents: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    polarity: Polarity = Polarity.UNSPECIFIED
    include_stale: bool = False

    @property
    def plain(self) -> bool:
        """Whether nothing but scope and project narrows it: active memories that are not stale."""
        return self == Selector(scopes=self.scopes, project=self.project)
