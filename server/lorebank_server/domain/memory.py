"""The memory and its parts: what an author claims, and what the service recorded and earned.

Enum values equal the numbers of the contract's enums; zero is "unspecified" and never stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any
from uuid import UUID

from lorebank_server.domain.quality import Quality


class State(IntEnum):
    """Where a memory stands in its life."""

    UNSPECIFIED = 0
    PROPOSED = 1
    ACTIVE = 2
    SUPERSEDED = 3
    ARCHIVED = 4
    DELETED = 5
    REJECTED = 6
    QUARANTINED = 7


class Kind(IntEnum):
    """How a memory is used."""

    UNSPECIFIED = 0
    SEMANTIC = 1
    PROCEDURAL = 2
    EPISODIC = 3


class Polarity(IntEnum):
    """Whether a memory says "do" or "do not"."""

    UNSPECIFIED = 0
    POSITIVE = 1
    NEGATIVE = 2


class Scope(IntEnum):
    """Who sees a memory."""

    UNSPECIFIED = 0
    USER = 1
    PROJECT = 2
    TEAM = 3
    GLOBAL = 4

    @property
    def private(self) -> bool:
        """Whether only the owner sees it."""
        return self in {Scope.USER, Scope.PROJECT}


class Outcome(IntEnum):
    """How an attempt ended."""

    UNSPECIFIED = 0
    SUCCESS = 1
    PARTIAL = 2
    FAILURE = 3
    DEAD_END = 4


class Origin(IntEnum):
    """How the author came to know."""

    UNSPECIFIED = 0
    EXPLICIT = 1
    INFERRED = 2
    CORRECTED = 3
    OBSERVED = 4
    CONSOLIDATED = 5
    IMPORTED = 6


class Author(IntEnum):
    """What sort of author wrote it."""

    UNSPECIFIED = 0
    HUMAN = 1
    AGENT = 2
    SYSTEM = 3


class Trust(IntEnum):
    """How far the text may be believed; the least of its sources'."""

    UNSPECIFIED = 0
    UNTRUSTED = 1
    EXTERNAL = 2
    INTERNAL = 3
    VERIFIED = 4


class Change(IntEnum):
    """What made a revision."""

    UNSPECIFIED = 0
    CREATE = 1
    UPDATE = 2
    MERGE = 3
    EVOLVE = 4
    SUPERSEDE = 5
    DELETE = 6
    UNDELETE = 7
    REVIEW = 8
    ARCHIVE = 9
    VALIDATE = 10
    QUARANTINE = 11
    REVERT = 12


@dataclass(frozen=True, slots=True)
class Evidence:
    """One piece of evidence on a card."""

    text: str = ""
    uri: str = ""
    digest: str = ""
    observe_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Triage:
    """From symptom to fix, in lists."""

    symptoms: tuple[str, ...] = ()
    likely_causes: tuple[str, ...] = ()
    verification_steps: tuple[str, ...] = ()
    fix_steps: tuple[str, ...] = ()
    gotchas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """A distilled, actionable form of the memory."""

    summary: str = ""
    when_to_use: tuple[str, ...] = ()
    how_to_apply: tuple[str, ...] = ()
    gotchas: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    outcome: Outcome = Outcome.UNSPECIFIED
    anti_pattern: str = ""
    triage: Triage | None = None
    signals: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Applicability:
    """Where a memory holds."""

    repo: str = ""
    package: str = ""
    module: str = ""
    runtime: str = ""
    versions: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a memory came from."""

    origin: Origin = Origin.UNSPECIFIED
    author: Author = Author.UNSPECIFIED
    agent: str = ""
    run: str = ""
    conversation: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """Everything an author says of a memory; the part that revisions keep."""

    content: str
    title: str = ""
    card: Card | None = None
    context: str = ""
    keywords: tuple[str, ...] = ()
    kind: Kind = Kind.UNSPECIFIED
    polarity: Polarity = Polarity.UNSPECIFIED
    category: str = ""
    collection: str = ""
    subject: str = ""
    tags: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    scope: Scope = Scope.UNSPECIFIED
    project: str = ""
    key: str = ""
    applicability: Applicability | None = None
    provenance: Provenance = Provenance()
    confidence: float | None = None
    utility: float | None = None
    pinned: bool = False
    valid_from: datetime | None = None
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """How often, and when last, a memory was returned to an agent."""

    use_count: int = 0
    last_used_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """A stored memory, as one caller sees it.

    Attributes:
        uid: UUIDv7, which is also the id of its vector.
        supersedes: Ids of the memories it replaced, in id order.
        superseded_by: Id of its live or latest successor, empty when there is none.
        content_hash: Lower-case hexadecimal SHA-256, see ``fingerprints.content_hash``.
    """

    id: str
    uid: UUID
    draft: Draft
    owner: str
    state: State
    revision: int
    quality: Quality
    usage: Usage
    content_hash: str
    create_time: datetime
    update_time: datetime
    validate_time: datetime | None = None
    delete_time: datetime | None = None
    supersedes: tuple[str, ...] = ()
    superseded_by: str = ""

    @property
    def etag(self) -> str:
        """Changes with every revision, and with nothing else."""
        return f"{self.uid.hex[-12:]}-{self.revision}"


@dataclass(frozen=True, slots=True)
class Revision:
    """One step in the history of a memory.

    Attributes:
        memory: The memory as that step left it; counts and usage are those of today.
        actor: Owner name of the principal who made the step.
    """

    memory: Memory
    change: Change
    actor: str
    reason: str
    run: str
    conversation: str
    create_time: datetime


@dataclass(frozen=True, slots=True)
class Relation:
    """A typed, weighted edge between two memories, by their ids."""

    id: str
    source: str
    type: str
    target: str
    strength: float
    context: str
    create_time: datetime


@dataclass(frozen=True, slots=True)
class Link:
    """An edge asked for when a memory is stored; the source is the new memory."""

    type: str
    target: str
    strength: float = 1.0
    context: str = ""
