"""UpdateMemory, DeleteMemory and UndeleteMemory: the same memory, one revision on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256

from lorebank_server.domain import fingerprints, limits, quality
from lorebank_server.domain.errors import FailedPreconditionError, InvalidArgumentError
from lorebank_server.domain.memory import Change, Draft, Memory, Scope, State
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.quality import Standing
from lorebank_server.domain.space import Space
from lorebank_server.domain.visibility import require_admin_for_global
from lorebank_server.operations import writing
from lorebank_server.operations.services import Services
from lorebank_server.ports.storage import Answer, NewRevision, NewText, ReadSession, WriteSession

_EDITABLE = frozenset({State.PROPOSED, State.ACTIVE})


@dataclass(frozen=True, slots=True)
class UpdateCommand:
    """A change to the words of a memory.

    Attributes:
        edit: Applies the caller's changes to the current draft; pure, and may run more than once.
        etag: Empty when the change applies to whatever revision is current.
    """

    id: str
    edit: Callable[[Draft], Draft]
    etag: str = ""
    reason: str = ""
    request_id: str = ""
    request_hash: str = ""


async def update_memory(services: Services, principal: Principal, command: UpdateCommand) -> tuple[Memory, Memory]:
    """Write the next revision of a memory; returns it and the one before.

    An edit that changes nothing writes nothing and returns the current revision twice.

    Raises:
        NotFoundError: It is not there, or not visible to the caller.
        AbortedError: The etag is stale.
        InvalidArgumentError: A field is at fault.
        FailedPreconditionError: It is superseded, deleted or rejected.
    """
    limits.check_text("reason", command.reason, maximum=limits.MAX_REASON_CHARS)
    now = services.clock()
    async with services.storage.reading(principal) as session:
        # The memory first: had a twin of this request changed it before, its answer is there when it is looked for.
        found = (await session.memories_by_id([command.id])).get(command.id)
        answered = await _answered(session, command)
        if answered is not None:
            return answered
        current = _editable(found, principal, command)
        space = session.space
        draft = _edited(services, principal, space, current, command)
    text = fingerprints.indexed_text(draft, current.create_time)
    reworded = text != fingerprints.indexed_text(current.draft, current.create_time)
    embedded = await writing.embed(services, space, [text] if reworded else [])

    async def body(session: WriteSession) -> tuple[Memory, Memory] | None:
        if command.request_id:
            await session.lock([f"request:{principal.space_id}:{principal.owner}:{command.request_id}"])
            answered = await _answered(session, command)
            if answered is not None:
                return answered
        locked = (await session.lock_memories([command.id])).get(command.id)
        if locked is None:
            raise writing.not_found(command.id)
        writing.check_etag(locked, command.etag)
        if locked.revision != current.revision:
            return None
        updated = locked
        if draft != locked.draft:
            new_text = None
            if reworded:
                (vector,) = embedded.in_space(session.space)
                new_text = NewText(text, sha256(text.encode()).digest(), vector)
            updated = await _write_update(services, principal, session, locked, draft, command, new_text, now)
        if command.request_id:
            result = {"id": updated.id, "revision": updated.revision, "previous": locked.revision}
            await session.record_answers({command.request_id: Answer(command.request_hash, result)}, time=now)
        return updated, locked

    done = await writing.transact(services, principal, body)
    return done if done is not None else await update_memory(services, principal, command)


async def delete_memory(services: Services, principal: Principal, *, id: str, etag: str = "") -> Memory:
    """Hide a memory, restorably; deleting a deleted one changes nothing.

    Raises:
        NotFoundError: It is not there, or not visible to the caller.
        AbortedError: The etag is stale.
    """

    async def body(session: WriteSession) -> Memory:
        memory = await lock_one(session, principal, id, etag)
        if memory.state is State.DELETED:
            return memory
        return await _change_state(services, principal, session, memory, Change.DELETE)

    return await writing.transact(services, principal, body)


async def undelete_memory(services: Services, principal: Principal, *, id: str, etag: str = "") -> Memory:
    """Bring a deleted, superseded or archived memory back; an active one stays as it is.

    Raises:
        NotFoundError: It is not there, or not visible to the caller.
        AbortedError: The etag is stale.
        FailedPreconditionError: A living successor holds its place, or its state asks for a review.
        AlreadyExistsError: Its natural key went to another memory.
    """

    async def body(session: WriteSession) -> Memory:
        memory = await lock_one(session, principal, id, etag)
        if memory.state is State.ACTIVE:
            return memory
        if memory.state in {State.PROPOSED, State.REJECTED, State.QUARANTINED}:
            raise FailedPreconditionError(
                f"The memory {memory.id} is {memory.state.name}: it needs a review, not an undelete.",
                reason="REVIEW_REQUIRED",
                subject=memory.id,
            )
        head = await living_successor(session, memory)
        if head is not None:
            raise FailedPreconditionError(
                f"The memory {memory.id} was superseded by {head.id}, which is active. Delete {head.id} first, or "
                f"supersede {head.id} with what you want to hold.",
                reason="SUPERSEDED",
                subject=memory.id,
                metadata={"superseded_by": head.id},
            )
        await writing.refuse_taken_key(session, writing.natural_key(memory.draft, memory.owner), besides=memory.id)
        return await _change_state(services, principal, session, memory, Change.UNDELETE)

    return await writing.transact(services, principal, body)


def next_revision(
    memory: Memory,
    *,
    principal: Principal,
    space: Space,
    services: Services,
    change: Change,
    reason: str,
    now: datetime,
) -> NewRevision:
    """The next revision of ``memory`` with nothing changed yet but its number, cause and time."""
    standing = standing_of(
        memory, half_life_days=writing.half_life_days(memory.draft, space=space, vocabulary=services.vocabulary)
    )
    return NewRevision(
        memory=memory,
        draft=memory.draft,
        content_hash=memory.content_hash,
        state=memory.state,
        change=change,
        actor=principal.owner,
        reason=reason,
        run="",
        conversation="",
        time=now,
        standing=standing,
        stale_time=quality.crossing_time(standing, space.stale_threshold),
        delete_time=memory.delete_time,
    )


def standing_of(memory: Memory, *, half_life_days: float | None) -> Standing:
    """The stored part of a memory's quality, with a half-life that may be new."""
    earned = memory.quality
    return Standing(
        policy=earned.policy,
        reputation=earned.reputation,
        half_life_days=half_life_days,
        reference_time=memory.validate_time or memory.create_time,
        upvotes=earned.upvotes,
        downvotes=earned.downvotes,
        citations=earned.citations,
        successes=earned.successes,
        failures=earned.failures,
    )


async def living_successor(session: ReadSession, memory: Memory) -> Memory | None:
    """The active memory at the end of the supersede chain that leaves from ``memory``, or None."""
    seen = {memory.id}
    while memory.superseded_by and memory.superseded_by not in seen:
        seen.add(memory.superseded_by)
        successor = (await session.memories_by_id([memory.superseded_by])).get(memory.superseded_by)
        if successor is None:
            return None
        memory = successor
    return memory if len(seen) > 1 and memory.state is State.ACTIVE else None


async def lock_one(session: WriteSession, principal: Principal, memory_id: str, etag: str) -> Memory:
    """Lock a memory for a change.

    Raises:
        NotFoundError: It is not there, or not visible to the caller.
        PermissionDeniedError: It is GLOBAL and the caller is no admin.
        AbortedError: The etag is stale.
    """
    visible = (await session.memories_by_id([memory_id])).get(memory_id)
    if visible is None:
        raise writing.not_found(memory_id)
    if visible.draft.scope is Scope.GLOBAL:
        require_admin_for_global(principal)
    memory = (await session.lock_memories([memory_id]))[memory_id]
    writing.check_etag(memory, etag)
    return memory


async def _change_state(
    services: Services, principal: Principal, session: WriteSession, memory: Memory, change: Change
) -> Memory:
    now = services.clock()
    deleted = change is Change.DELETE
    revision = replace(
        next_revision(
            memory, principal=principal, space=session.space, services=services, change=change, reason="", now=now
        ),
        state=State.DELETED if deleted else State.ACTIVE,
        delete_time=now if deleted else None,
        keep_successor=deleted,
    )
    if memory.superseded_by and not deleted:
        await session.unlink_superseded(memory.uid)
    await session.revise(revision)
    return (await session.memories_by_id([memory.id]))[memory.id]


async def _answered(session: ReadSession, command: UpdateCommand) -> tuple[Memory, Memory] | None:
    if not command.request_id:
        return None
    answer = (await session.answers([command.request_id])).get(command.request_id)
    if answer is None:
        return None
    writing.check_request_hash(answer, command.request_hash)
    updated = await writing.as_answered(session, answer.result)
    previous = await writing.as_answered(session, {**answer.result, "revision": answer.result["previous"]})
    return updated, previous


def _editable(memory: Memory | None, principal: Principal, command: UpdateCommand) -> Memory:
    if memory is None:
        raise writing.not_found(command.id)
    if memory.draft.scope is Scope.GLOBAL:
        require_admin_for_global(principal)
    writing.check_etag(memory, command.etag)
    refuse_unless_editable(memory)
    return memory


def refuse_unless_editable(memory: Memory) -> None:
    """Refuse to change what is superseded, deleted or rejected, naming what to do instead."""
    if memory.state in _EDITABLE:
        return
    if memory.state is State.SUPERSEDED:
        raise FailedPreconditionError(
            f"The memory {memory.id} was superseded by {memory.superseded_by}: change {memory.superseded_by} instead.",
            reason="SUPERSEDED",
            subject=memory.id,
            metadata={"superseded_by": memory.superseded_by},
        )
    raise FailedPreconditionError(
        f"The memory {memory.id} is {memory.state.name}: undelete it or have it reviewed first, or store a new one.",
        reason="NOT_ACTIVE",
        subject=memory.id,
        metadata={"state": memory.state.name},
    )


def _edited(services: Services, principal: Principal, space: Space, current: Memory, command: UpdateCommand) -> Draft:
    before = current.draft
    edited = command.edit(before)
    for name in ("key", "scope", "project"):
        if getattr(edited, name) != getattr(before, name):
            raise InvalidArgumentError(
                f"memory.{name} cannot change: supersede {current.id} with a memory that has the {name} you want.",
                field=f"memory.{name}",
                reason="IMMUTABLE_FIELD",
            )
    # A memory's project may lie outside a bound credential's default, so its own place is kept as it is.
    completed = writing.complete(edited, principal=principal, space=space, vocabulary=services.vocabulary)
    return replace(completed, scope=before.scope, project=before.project)


async def _write_update(
    services: Services,
    principal: Principal,
    session: WriteSession,
    locked: Memory,
    draft: Draft,
    command: UpdateCommand,
    new_text: NewText | None,
    now: datetime,
) -> Memory:
    revision = next_revision(
        replace(locked, draft=draft),
        principal=principal,
        space=session.space,
        services=services,
        change=Change.UPDATE,
        reason=command.reason,
        now=now,
    )
    await session.revise(
        replace(
            revision,
            content_hash=fingerprints.content_hash(draft),
            run=draft.provenance.run,
            conversation=draft.provenance.conversation,
            text=new_text,
        )
    )
    return (await session.memories_by_id([locked.id]))[locked.id]
