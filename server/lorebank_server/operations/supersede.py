"""Supersede: the world changed, so a new memory takes the place of old ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lorebank_server.domain import limits
from lorebank_server.domain.errors import FailedPreconditionError, InvalidArgumentError
from lorebank_server.domain.ids import new_short_id
from lorebank_server.domain.memory import Change, Draft, Kind, Memory, Scope, State
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.visibility import require_admin_for_global
from lorebank_server.operations import revise, writing
from lorebank_server.operations.services import Services
from lorebank_server.operations.writing import Prepared
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.storage import Answer, NewRelation, ReadSession, WriteSession

MAX_SUPERSEDED = 100


@dataclass(frozen=True, slots=True)
class SupersedeCommand:
    """What replaces what.

    Attributes:
        draft: The new memory. Scope, project, kind, category, collection and subject that it leaves out are taken
            from the first of ``ids``.
    """

    ids: tuple[str, ...]
    draft: Draft
    reason: str = ""
    request_id: str = ""
    request_hash: str = ""


@dataclass(frozen=True, slots=True)
class SupersedeResult:
    """The new memory, and the replaced ones in the order asked for."""

    memory: Memory
    superseded: tuple[Memory, ...]


async def supersede(services: Services, principal: Principal, command: SupersedeCommand) -> SupersedeResult:
    """Store a memory that replaces active ones, all in one transaction.

    Raises:
        NotFoundError: One of the ids is not there, or not visible to the caller.
        FailedPreconditionError: One of them is not active; when it was superseded, the error names the successor.
        InvalidArgumentError: A field is at fault.
        AlreadyExistsError: The natural key is taken, or the request id was used for another body.
    """
    ids = tuple(dict.fromkeys(command.ids))
    if not 1 <= len(ids) <= MAX_SUPERSEDED:
        raise InvalidArgumentError(f"ids has {len(ids)} entries; name 1 to {MAX_SUPERSEDED} memories.", field="ids")
    limits.check_text("reason", command.reason, maximum=limits.MAX_REASON_CHARS)
    now = services.clock()
    async with services.storage.reading(principal) as session:
        # The targets first: had a twin of this request changed them before, its answer is there when it is looked for.
        targets = await session.memories_by_id(ids)
        answered = await _answered(session, command)
        if answered is not None:
            return answered
        _check_targets(principal, ids, targets)
        space = session.space
        prepared = _prepare(services, principal, session, command.draft, targets[ids[0]], now)
    embedded = await writing.embed(services, space, [prepared.text])

    async def body(session: WriteSession) -> SupersedeResult:
        if command.request_id:
            await session.lock([f"request:{principal.space_id}:{principal.owner}:{command.request_id}"])
            answered = await _answered(session, command)
            if answered is not None:
                return answered
        locked = await session.lock_memories(ids)
        _check_targets(principal, ids, locked)
        (vector,) = embedded.in_space(session.space)
        result = await _replace(services, principal, session, prepared, vector, [locked[i] for i in ids], command, now)
        if command.request_id:
            old = [{"id": memory.id, "revision": memory.revision} for memory in result.superseded]
            recorded = {"id": result.memory.id, "revision": 1, "superseded": old}
            await session.record_answers({command.request_id: Answer(command.request_hash, recorded)}, time=now)
        return result

    return await writing.transact(services, principal, body)


def _prepare(
    services: Services, principal: Principal, session: ReadSession, draft: Draft, first: Memory, now: datetime
) -> Prepared:
    old = first.draft
    inherited = replace(
        draft,
        scope=Scope(draft.scope or old.scope),
        project=draft.project or old.project,
        kind=Kind(draft.kind or (Kind.UNSPECIFIED if draft.category else old.kind)),
        category=draft.category or old.category,
        collection=draft.collection or old.collection,
        subject=draft.subject or old.subject,
    )
    completed = writing.complete(inherited, principal=principal, space=session.space, vocabulary=services.vocabulary)
    if completed.scope is old.scope and not draft.project:
        # A credential bound to a project must not take from everybody else what they saw.
        completed = replace(completed, project=old.project)
    return writing.prepare(completed, space=session.space, vocabulary=services.vocabulary, now=now)


def _check_targets(principal: Principal, ids: Sequence[str], targets: dict[str, Memory]) -> None:
    for memory_id in ids:
        memory = targets.get(memory_id)
        if memory is None:
            raise writing.not_found(memory_id)
        if memory.draft.scope is Scope.GLOBAL:
            require_admin_for_global(principal)
        if memory.state is not State.ACTIVE:
            revise.refuse_unless_editable(memory)
            raise FailedPreconditionError(
                f"The memory {memory.id} is {memory.state.name}; only active memories are superseded.",
                reason="NOT_ACTIVE",
                subject=memory.id,
                metadata={"state": memory.state.name},
            )


async def _replace(
    services: Services,
    principal: Principal,
    session: WriteSession,
    prepared: Prepared,
    vector: Vector | None,
    old: Sequence[Memory],
    command: SupersedeCommand,
    now: datetime,
) -> SupersedeResult:
    new = writing.new_memory(
        prepared,
        vector,
        services=services,
        principal=principal,
        now=now,
        reason=command.reason,
        relations=[NewRelation(new_short_id(), "supersedes", memory.uid, 1.0, command.reason) for memory in old],
    )
    for memory in old:
        revision = revise.next_revision(
            memory,
            principal=principal,
            space=session.space,
            services=services,
            change=Change.SUPERSEDE,
            reason=command.reason,
            now=now,
        )
        provenance = prepared.draft.provenance
        await session.revise(
            replace(
                revision,
                state=State.SUPERSEDED,
                superseded_by=new.uid,
                run=provenance.run,
                conversation=provenance.conversation,
            )
        )
    await writing.refuse_taken_key(session, writing.natural_key(new.draft, principal.owner))
    await session.insert([new])
    ids = [memory.id for memory in old]
    after = await session.memories_by_id(ids)
    memory = writing.as_memory(new, space=session.space, supersedes=ids)
    return SupersedeResult(memory, tuple(after[memory_id] for memory_id in ids))


async def _answered(session: ReadSession, command: SupersedeCommand) -> SupersedeResult | None:
    if not command.request_id:
        return None
    answer = (await session.answers([command.request_id])).get(command.request_id)
    if answer is None:
        return None
    writing.check_request_hash(answer, command.request_hash)
    memory = await writing.as_answered(session, answer.result)
    old = [await writing.as_answered(session, result) for result in answer.result["superseded"]]
    return SupersedeResult(memory, tuple(old))
