"""The port to the truth: memories, their history and everything recorded about them.

A storage hands out sessions. Each session belongs to one principal and sees only what that principal may see; the
adapter enforces it twice, in its queries and in the database itself. Every call may raise
``StorageUnavailableError``.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from lorebank_server.domain.memory import Change, Draft, Memory, Relation, Revision, State
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.quality import Standing, Tally
from lorebank_server.domain.ranking import Candidate
from lorebank_server.domain.selector import Selector
from lorebank_server.domain.space import Space
from lorebank_server.ports.embedder import Vector


class OrderBy(StrEnum):
    """Values that a listing can be ordered by; ties are broken by uid in the same direction."""

    CREATE_TIME = "create_time"
    UPDATE_TIME = "update_time"
    USE_COUNT = "use_count"
    STRENGTH = "strength"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page ends: the ordering value (seconds since the epoch for times) and uid of its last memory."""

    value: float
    uid: UUID


@dataclass(frozen=True, slots=True)
class NewRelation:
    """An edge to write together with its source."""

    id: str
    type: str
    target: UUID
    strength: float
    context: str


@dataclass(frozen=True, slots=True)
class NewMemory:
    """Everything to write for one new memory.

    Attributes:
        text: What both search legs index.
        text_hash: SHA-256 of that text.
        vector: None when no embedder answered; the dense leg then does not know the memory.
        stale_time: When its strength falls below the space's threshold; None for never.
    """

    uid: UUID
    id: str
    draft: Draft
    owner: str
    content_hash: str
    text: str
    text_hash: bytes
    vector: Vector | None
    standing: Standing
    stale_time: datetime | None
    create_time: datetime
    reason: str = ""
    relations: tuple[NewRelation, ...] = ()


@dataclass(frozen=True, slots=True)
class NewText:
    """The part of a revision that search sees, when it changed; without a vector the old one is dropped."""

    text: str
    text_hash: bytes
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class NewRevision:
    """The next revision of a memory that the session has locked.

    Attributes:
        superseded_by: Uid of the successor when this revision supersedes the memory.
        keep_successor: False clears the link to a successor.
        text: None when search sees the same as before.
    """

    memory: Memory
    draft: Draft
    content_hash: str
    state: State
    change: Change
    actor: str
    reason: str
    run: str
    conversation: str
    time: datetime
    standing: Standing
    stale_time: datetime | None
    delete_time: datetime | None
    superseded_by: UUID | None = None
    keep_successor: bool = True
    text: NewText | None = None


@dataclass(frozen=True, slots=True)
class BallotRecord:
    """One ballot of the session's principal, to be cast or withdrawn."""

    memory: UUID
    run: str
    signal: int
    reason: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Match:
    """A living memory that equals a draft exactly: content hash, owner, scope, project and subject."""

    content_hash: str
    scope: int
    project: str
    subject: str
    id: str


@dataclass(frozen=True, slots=True)
class NaturalKey:
    """A key where it must be unique: per owner (USER, PROJECT), project (TEAM) or space (GLOBAL)."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered: the hash of its body, and small facts from which the answer is built again."""

    request_hash: str
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """What a query means in this space for this caller, before any candidate is looked for.

    Attributes:
        space_id: Number of the space.
        generation: Number of the embedding model whose vectors the space is searched by.
        buckets: The sets of memories that the caller may read and the selector selects.
        terms: Lexemes of the query, rarest first.
        frequencies: Document frequency of each term.
        documents: Active memories in these buckets, as last counted.
    """

    space_id: int
    generation: int
    buckets: tuple[int, ...]
    terms: tuple[str, ...]
    frequencies: tuple[int, ...]
    documents: int
    total_length: int


@dataclass(frozen=True, slots=True)
class TermWeights:
    """A query's terms with their inverse document frequencies, and which of them candidates are drawn from.

    Attributes:
        rarest: The rarest terms, whose matches are bounded.
    """

    terms: tuple[str, ...]
    weights: tuple[float, ...]
    rarest: tuple[str, ...]
    average_length: float


class ReadSession(Protocol):
    """Reads on behalf of one principal. Empty input gives empty output and costs nothing."""

    @property
    def space(self) -> Space:
        """The principal's space as it stood when the session began."""
        ...

    def resting(self) -> AbstractAsyncContextManager[None]:
        """For a block that waits for something else: what the session holds may serve others meanwhile.

        Within the block the session must not be used. A session that writes keeps what it holds.

        Raises:
            StorageUnavailableError: When the block ends, Postgres is away.
        """
        ...

    async def memories_by_id(self, ids: Sequence[str]) -> dict[str, Memory]:
        """The visible memories among ``ids``, in whatever state."""
        ...

    async def memories_by_uid(self, uids: Sequence[UUID]) -> dict[UUID, Memory]:
        """The visible memories among ``uids``, in whatever state."""
        ...

    async def memory_by_key(self, key: str) -> Memory | None:
        """The living visible memory with this natural key; the caller's own before any other."""
        ...

    async def list_memories(
        self,
        selector: Selector,
        *,
        order_by: OrderBy,
        descending: bool,
        after: Position | None,
        limit: int,
        now: datetime,
    ) -> list[tuple[Memory, Position]]:
        """A page of the selected memories, each with its position; strength is taken at ``now``."""
        ...

    async def count_memories(self, selector: Selector, *, now: datetime) -> int:
        """How many memories are selected."""
        ...

    async def revisions(self, uid: UUID, *, after: int, limit: int) -> list[Revision]:
        """Revisions of a visible memory with a number above ``after``, oldest first."""
        ...

    async def relations_of(
        self, uids: Sequence[UUID], *, types: Sequence[str], min_strength: float, limit: int, among: bool = False
    ) -> list[tuple[Relation, UUID, UUID]]:
        """Edges between visible memories with an end in ``uids``, or with both ends there if ``among``.

        An end outside of ``uids`` is active or superseded, not stale and not over. Each edge comes with the uids of
        source and target, strongest first, ties by id.
        """
        ...

    async def answers(self, request_ids: Sequence[str]) -> dict[str, Answer]:
        """What the principal's earlier requests of these ids were answered, as far as that is still kept."""
        ...

    async def key_holders(self, keys: Sequence[NaturalKey]) -> dict[NaturalKey, str]:
        """Ids of the living visible memories that hold these natural keys."""
        ...

    async def exact_matches(self, content_hashes: Sequence[str]) -> list[Match]:
        """Active memories of the principal with one of these content hashes."""
        ...

    async def plan_recall(self, text: str, selector: Selector) -> RecallPlan:
        """Resolve visibility and the query's terms."""
        ...

    async def lexical_candidates(
        self, plan: RecallPlan, weights: TermWeights, selector: Selector, *, now: datetime, limit: int
    ) -> list[Candidate]:
        """The lexical leg: at most ``limit`` visible and selected memories by words, without their cosines."""
        ...

    async def confirm(
        self,
        dense: Mapping[UUID, float | None],
        lexical: Sequence[Candidate],
        weights: TermWeights,
        vector: Vector,
        selector: Selector,
        *,
        now: datetime,
    ) -> list[Candidate]:
        """The candidates of both legs, each with both exact scores.

        Those of ``lexical``, and those of ``dense`` that are visible and selected.
        """
        ...

    async def vector_of(self, uid: UUID) -> Vector | None:
        """The stored vector of a visible memory, or None while it has none."""
        ...


class WriteSession(ReadSession, Protocol):
    """Reads and writes in one transaction, which commits when its context ends without an error."""

    async def lock(self, names: Sequence[str]) -> None:
        """Hold these names until the transaction ends, against every other session that asks for them."""
        ...

    async def lock_memories(self, ids: Sequence[str]) -> dict[str, Memory]:
        """As ``memories_by_id``, held against every other writer of these memories until the transaction ends."""
        ...

    async def insert(self, memories: Sequence[NewMemory]) -> None:
        """Write new memories, all or none.

        Raises:
            IdTakenError: An id exists already; draw new ones and run the transaction again.
            AlreadyExistsError: A natural key is taken.
        """
        ...

    async def revise(self, revision: NewRevision) -> None:
        """Write the next revision of a locked memory.

        Raises:
            AlreadyExistsError: Its natural key was taken meanwhile.
        """
        ...

    async def cast(self, ballots: Sequence[BallotRecord]) -> None:
        """Record ballots; one that exists already gets the new reason."""
        ...

    async def unlink_superseded(self, memory: UUID) -> None:
        """Remove the edge from whatever superseded this memory."""
        ...

    async def withdraw(self, memory: UUID, run: str, signals: Sequence[int]) -> None:
        """Remove the principal's ballots of these signals on a memory in a run."""
        ...

    async def tallies(self, memories: Sequence[UUID]) -> dict[UUID, list[Tally]]:
        """Per voter counts of every memory given, withdrawn ballots left out."""
        ...

    async def record_standing(self, memory: UUID, standing: Standing, *, stale_time: datetime | None) -> None:
        """Write what follows from a memory's tallies."""
        ...

    async def record_answers(self, answers: Mapping[str, Answer], *, time: datetime) -> None:
        """Keep the answers to requests, by request id, in the same transaction as what they did."""
        ...


class IdTakenError(Exception):
    """A freshly drawn id exists already; draw another and run the transaction again."""


class WriteConflictError(Exception):
    """Postgres gave up this transaction in favour of another (deadlock); run it again."""


class Storage(Protocol):
    """Hands out sessions."""

    def reading(self, principal: Principal, *, now: datetime | None = None) -> AbstractAsyncContextManager[ReadSession]:
        """A session for reads, each seeing the latest commit; quality is taken at ``now``, or when it begins."""
        ...

    def writing(self, principal: Principal) -> AbstractAsyncContextManager[WriteSession]:
        """A session that is one transaction."""
        ...

    async def check(self) -> None:
        """Return when Postgres answers.

        Raises:
            StorageUnavailableError: It does not.
        """
        ...
