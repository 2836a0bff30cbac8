"""What every operation that writes a memory shares: completing a draft, embedding it, running its transaction."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, TypeVar

from lorebank_server.domain import fingerprints, limits, quality
from lorebank_server.domain.errors import (
    AbortedError,
    AlreadyExistsError,
    EmbedderUnavailableError,
    NotFoundError,
)
from lorebank_server.domain.ids import new_short_id
from lorebank_server.domain.memory import Draft, Kind, Link, Memory, Origin, Polarity, State, Usage
from lorebank_server.domain.packs import Vocabulary
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.quality import Standing
from lorebank_server.domain.space import Space
from lorebank_server.domain.visibility import key_namespace, place
from lorebank_server.operations.services import Services
from lorebank_server.ports.deadline import share
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.stages import note, stage
from lorebank_server.ports.storage import (
    Answer,
    IdTakenError,
    NaturalKey,
    NewMemory,
    NewRelation,
    ReadSession,
    WriteConflictError,
    WriteSession,
)

EMBEDDING_SHARE = 0.5
"""Part of the caller's time that the embedding model may take; in the rest the call is answered without it."""

NOT_EMBEDDED = (
    "The embedding model did not answer: until it does and this memory is embedded, which happens by itself, the "
    "memory is found by its words only."
)

_CONFIDENCE_BY_ORIGIN = {Origin.EXPLICIT: 1.0, Origin.CORRECTED: 0.9, Origin.INFERRED: 0.7}
_ATTEMPTS = 5

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked draft with everything that follows from it."""

    draft: Draft
    content_hash: str
    text: str
    text_hash: bytes
    standing: Standing
    stale_time: datetime | None


def complete(draft: Draft, *, principal: Principal, space: Space, vocabulary: Vocabulary) -> Draft:
    """Fill in what the author left out, and check every limit.

    Raises:
        InvalidArgumentError: A field is at fault.
        PermissionDeniedError: The principal may not write there.
    """
    checked = limits.normalize(place(draft, principal))
    kind = checked.kind
    category = checked.category
    if category:
        found = vocabulary.category(category, field="memory.category")
        category, kind = found.slug, kind or found.kind
    confidence = checked.confidence
    if confidence is None:
        confidence = _CONFIDENCE_BY_ORIGIN.get(checked.provenance.origin, space.default_confidence)
    return replace(
        checked,
        category=category,
        kind=Kind(kind or Kind.SEMANTIC),
        polarity=Polarity(checked.polarity or Polarity.POSITIVE),
        confidence=confidence,
    )


def prepare(draft: Draft, *, space: Space, vocabulary: Vocabulary, now: datetime) -> Prepared:
    """Derive hashes, indexed text and standing of a completed draft that begins its life at ``now``."""
    text = fingerprints.indexed_text(draft, now)
    standing = Standing(
        policy=space.quality_policy,
        reputation=quality.reputation(space.quality_policy, ()),
        half_life_days=half_life_days(draft, space=space, vocabulary=vocabulary),
        reference_time=now,
    )
    return Prepared(
        draft=draft,
        content_hash=fingerprints.content_hash(draft),
        text=text,
        text_hash=sha256(text.encode()).digest(),
        standing=standing,
        stale_time=quality.crossing_time(standing, space.stale_threshold),
    )


def half_life_days(draft: Draft, *, space: Space, vocabulary: Vocabulary) -> float | None:
    """Half-life of a memory: none when pinned, else its category's, else its space's."""
    if draft.pinned:
        return None
    if draft.category:
        category = vocabulary.category(draft.category, field="memory.category")
        if not category.decays:
            return None
        if category.half_life_days is not None:
            return category.half_life_days
    return space.half_life_days


class OtherGenerationError(Exception):
    """The space is searched by vectors of another model than those that were made."""

    def __init__(self, embedded: "Embedded", generation: int) -> None:
        super().__init__()
        self.embedded = embedded
        self.generation = generation


@dataclass(slots=True)
class Embedded:
    """Texts with their vectors, of the model that their space was searched by when it was last asked.

    Attributes:
        generation: The model's.
        vectors: In the order of the texts; None for each when the model did not answer.
    """

    texts: Sequence[str]
    generation: int
    vectors: Sequence[Vector | None] = ()

    async def follow(self, services: Services, generation: int) -> None:
        """Make the vectors with the model of ``generation``, unless it does not answer in the time there is for it."""
        self.generation, self.vectors = generation, [None] * len(self.texts)
        if not self.texts:
            return
        with contextlib.suppress(EmbedderUnavailableError, TimeoutError), stage("embed"):
            async with asyncio.timeout(share(EMBEDDING_SHARE)):
                self.vectors = await services.embedders.of(generation).embed_documents(self.texts)

    def in_space(self, space: Space) -> list[Vector | None]:
        """The vectors in the order of the texts, to be written to the space as it is now.

        Raises:
            OtherGenerationError: They are of no use there any more; ``transact`` has others made.
        """
        if self.generation != space.embedding_model and any(vector is not None for vector in self.vectors):
            raise OtherGenerationError(self, space.embedding_model)
        return list(self.vectors)


async def embed(services: Services, space: Space, texts: Sequence[str]) -> Embedded:
    """The texts with vectors of the model that the space is searched by."""
    embedded = Embedded(texts, space.embedding_model)
    await embedded.follow(services, space.embedding_model)
    return embedded


def new_memory(
    prepared: Prepared,
    vector: Vector | None,
    *,
    services: Services,
    principal: Principal,
    now: datetime,
    relations: Sequence[NewRelation] = (),
    reason: str = "",
) -> NewMemory:
    """A memory ready to be inserted, under a fresh id."""
    return NewMemory(
        uid=services.new_uid(),
        id=new_short_id(),
        draft=prepared.draft,
        owner=principal.owner,
        content_hash=prepared.content_hash,
        text=prepared.text,
        text_hash=prepared.text_hash,
        vector=vector,
        standing=prepared.standing,
        stale_time=prepared.stale_time,
        create_time=now,
        reason=reason,
        relations=tuple(relations),
    )


def as_memory(new: NewMemory, *, space: Space, supersedes: Sequence[str] = ()) -> Memory:
    """What a reader sees of a memory just inserted."""
    return Memory(
        id=new.id,
        uid=new.uid,
        draft=new.draft,
        owner=new.owner,
        state=State.ACTIVE,
        revision=1,
        quality=quality.assess(new.standing, now=new.create_time, stale_threshold=space.stale_threshold),
        usage=Usage(),
        content_hash=new.content_hash,
        create_time=new.create_time,
        update_time=new.create_time,
        supersedes=tuple(sorted(supersedes)),
    )


def natural_key(draft: Draft, owner: str) -> NaturalKey | None:
    """Where the draft's key must be unique, or None when it has none."""
    if not draft.key:
        return None
    return NaturalKey(namespace=key_namespace(draft.scope, owner, draft.project), key=draft.key)


def key_taken(key: NaturalKey, holder: str) -> AlreadyExistsError:
    """The error that says who holds a natural key."""
    return AlreadyExistsError(
        f"The memory {holder} has the key {key.key!r} already: update or supersede {holder}, or choose another key.",
        reason="KEY_TAKEN",
        metadata={"id": holder},
    )


async def refuse_taken_key(session: ReadSession, key: NaturalKey | None, *, besides: str = "") -> None:
    """Refuse a natural key that a living memory holds, naming it, unless that is the memory ``besides``.

    A holder that comes in between is met by the unique index, whose error knows no name.
    """
    holders = await session.key_holders([key] if key else [])
    if key in holders and holders[key] != besides:
        raise key_taken(key, holders[key])


async def resolve_links(
    session: ReadSession, links: Sequence[Link], *, known: Mapping[str, Memory] | None = None
) -> tuple[NewRelation, ...]:
    """Turn links into edges to visible memories.

    Raises:
        NotFoundError: A target is not there, or not visible to the caller.
    """
    if not links:
        return ()
    targets = known if known is not None else await session.memories_by_id([link.target for link in links])
    for link in links:
        if link.target not in targets:
            raise not_found(link.target)
    return tuple(
        NewRelation(
            id=new_short_id(),
            type=link.type,
            target=targets[link.target].uid,
            strength=link.strength,
            context=link.context,
        )
        for link in links
    )


def not_found(memory_id: str) -> NotFoundError:
    """The one error for what is not there and for what the caller may not see."""
    return NotFoundError(
        f"There is no memory {memory_id[:64]!r} that you can see. Find or list memories to get its id.",
        reason="MEMORY_NOT_FOUND",
        metadata={"id": memory_id[:64]},
    )


def check_etag(memory: Memory, etag: str) -> None:
    """Refuse a change made against another revision than the current one."""
    if etag and etag != memory.etag:
        raise AbortedError(
            f"The memory {memory.id} has changed since you read it (it is at revision {memory.revision}). "
            "Get it again, then retry with its new etag.",
            reason="ETAG_MISMATCH",
            metadata={"id": memory.id, "revision": str(memory.revision)},
        )


def check_request_hash(answer: Answer, request_hash: str) -> None:
    """Refuse a request id that was used for another body."""
    if answer.request_hash != request_hash:
        raise AlreadyExistsError(
            "This request_id was used within 24 hours for a request with another body. "
            "Send a new request_id for a new request.",
            reason="REQUEST_ID_REUSED",
        )


async def transact(
    services: Services, principal: Principal, body: Callable[[WriteSession], Awaitable[_Result]]
) -> _Result:
    """Run ``body`` in one transaction, again when an id collides or Postgres resolves a deadlock.

    When the space has moved to another model meanwhile, ``body`` finds vectors of that one. After the commit the vector
    index gets a moment to follow.

    Raises:
        AbortedError: It lost every time.
    """
    with stage("write"):
        for attempt in range(_ATTEMPTS):
            note(attempts=attempt + 1)
            try:
                async with services.storage.writing(principal) as session:
                    result = await body(session)
            except (IdTakenError, WriteConflictError):
                continue
            except OtherGenerationError as error:
                await error.embedded.follow(services, error.generation)
                continue
            await services.vectors.settle()
            return result
        raise AbortedError(
            "Other writers kept changing the same memories; read them again, then retry.", reason="WRITE_CONFLICT"
        )


async def as_answered(session: ReadSession, result: Mapping[str, Any]) -> Memory:
    """The memory of a recorded answer, at the revision it had then.

    Raises:
        NotFoundError: It is gone for good, or no longer visible to the caller.
    """
    memories = await session.memories_by_id([result["id"]])
    memory = memories.get(result["id"])
    if memory is None:
        raise not_found(result["id"])
    if memory.revision == result["revision"]:
        return memory
    revisions = await session.revisions(memory.uid, after=result["revision"] - 1, limit=1)
    return revisions[0].memory
