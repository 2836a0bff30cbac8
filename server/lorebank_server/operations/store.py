"""Store: remember one fact, or many."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from lorebank_server.domain import limits
from lorebank_server.domain.errors import AlreadyExistsError, InvalidArgumentError, LorebankError
from lorebank_server.domain.memory import Draft, Link, Memory
from lorebank_server.domain.principal import Principal
from lorebank_server.operations import writing
from lorebank_server.operations.services import Services
from lorebank_server.operations.writing import Embedded, Prepared
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.stages import note
from lorebank_server.ports.storage import Answer, Match, NaturalKey, NewMemory, ReadSession, WriteSession


class OnDuplicate(IntEnum):
    """What to do with a memory that the space has already; so far exact equality is what counts."""

    UNSPECIFIED = 0
    KEEP_BOTH = 1


class Result(IntEnum):
    """What became of a Store."""

    UNSPECIFIED = 0
    CREATED = 1
    UNCHANGED = 2


@dataclass(frozen=True, slots=True)
class StoreCommand:
    """One memory to store.

    Attributes:
        request_id: Empty when the call is not to be idempotent.
        request_hash: Digest of the request's body, compared when the id comes again.
    """

    draft: Draft
    on_duplicate: OnDuplicate = OnDuplicate.UNSPECIFIED
    request_id: str = ""
    request_hash: str = ""
    links: tuple[Link, ...] = ()
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class StoreResult:
    """The stored memory, or the equal one that was there before."""

    memory: Memory
    result: Result
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Item:
    position: int
    command: StoreCommand
    prepared: Prepared
    links: tuple[Link, ...]
    key: NaturalKey | None

    @property
    def identity(self) -> Match:
        draft = self.prepared.draft
        return Match(self.prepared.content_hash, int(draft.scope), draft.project, draft.subject, "")


_Outcome = StoreResult | LorebankError


async def store(services: Services, principal: Principal, command: StoreCommand) -> StoreResult:
    """Store one memory.

    A memory that equals an active one exactly (content hash, owner, scope, project and subject) is not stored
    again but answered UNCHANGED, unless ``KEEP_BOTH`` asks for it.

    Raises:
        InvalidArgumentError: A field is at fault.
        PermissionDeniedError: The principal may not write there.
        NotFoundError: A link's target is not visible.
        AlreadyExistsError: The natural key is taken, or the request id was used for another body.
    """
    (outcome,) = await store_many(services, principal, [command])
    if isinstance(outcome, LorebankError):
        raise outcome
    return outcome


async def store_many(
    services: Services, principal: Principal, commands: Sequence[StoreCommand | LorebankError]
) -> list[_Outcome]:
    """Store memories in the order given, each with its own outcome; those that can be written share one commit."""
    now = services.clock()
    outcomes: dict[int, _Outcome] = {}
    async with services.storage.reading(principal) as session:
        items = _prepare(services, principal, session, commands, now, outcomes)
        for item in list(items):
            if item.command.validate_only:
                outcomes[item.position] = await _rehearse(services, principal, session, item, now)
                items.remove(item)
        pending = await _settle_known(session, items, outcomes, final=False)
        space = session.space
    embedded = await writing.embed(services, space, [item.prepared.text for item in pending])
    if pending:
        try:
            outcomes |= await _write(services, principal, pending, embedded, now)
        except AlreadyExistsError as error:
            if len(pending) == 1:
                outcomes[pending[0].position] = error
            else:
                outcomes |= await _write_one_by_one(services, principal, pending, embedded, now)
    return [outcomes[position] for position in range(len(commands))]


def _prepare(
    services: Services,
    principal: Principal,
    session: ReadSession,
    commands: Sequence[StoreCommand | LorebankError],
    now: datetime,
    outcomes: dict[int, _Outcome],
) -> list[_Item]:
    items = []
    for position, command in enumerate(commands):
        if isinstance(command, LorebankError):
            outcomes[position] = command
            continue
        try:
            draft = writing.complete(
                command.draft, principal=principal, space=session.space, vocabulary=services.vocabulary
            )
            links = limits.normalize_links(command.links)
        except LorebankError as error:
            outcomes[position] = error
            continue
        prepared = writing.prepare(draft, space=session.space, vocabulary=services.vocabulary, now=now)
        key = writing.natural_key(draft, principal.owner)
        items.append(_Item(position, command, prepared, links, key))
    return items


async def _rehearse(
    services: Services, principal: Principal, session: ReadSession, item: _Item, now: datetime
) -> _Outcome:
    """The answer that storing would give, with nothing written."""
    rehearsal: dict[int, _Outcome] = {}
    try:
        if await _settle_known(session, [item], rehearsal):
            await writing.resolve_links(session, item.links)
            await writing.refuse_taken_key(session, item.key)
            new = writing.new_memory(item.prepared, None, services=services, principal=principal, now=now)
            return StoreResult(writing.as_memory(new, space=session.space), Result.CREATED)
    except LorebankError as error:
        return error
    return rehearsal[item.position]


async def _settle_known(
    session: ReadSession, items: Sequence[_Item], outcomes: dict[int, _Outcome], *, final: bool = True
) -> list[_Item]:
    """Answer the items that were stored before, and return the others.

    Before the ``final`` look, under the locks, an equal memory settles only what leaves no answer to record.
    """
    answers = await session.answers([item.command.request_id for item in items if item.command.request_id])
    comparable = [item for item in items if item.command.on_duplicate is not OnDuplicate.KEEP_BOTH]
    matches = await session.exact_matches([item.prepared.content_hash for item in comparable])
    by_identity = {Match(m.content_hash, m.scope, m.project, m.subject, ""): m.id for m in matches}
    equal_ids = {item.position: by_identity[item.identity] for item in comparable if item.identity in by_identity}
    equals = await session.memories_by_id(sorted(set(equal_ids.values())))
    open_items = []
    for item in items:
        answer = answers.get(item.command.request_id)
        try:
            if answer is not None:
                outcomes[item.position] = await _replay(session, item, answer)
            elif item.position in equal_ids and (final or not item.command.request_id):
                outcomes[item.position] = StoreResult(equals[equal_ids[item.position]], Result.UNCHANGED)
            else:
                open_items.append(item)
        except LorebankError as error:
            outcomes[item.position] = error
    return open_items


async def _replay(session: ReadSession, item: _Item, answer: Answer) -> StoreResult:
    writing.check_request_hash(answer, item.command.request_hash)
    memory = await writing.as_answered(session, answer.result)
    return StoreResult(memory, Result(answer.result["result"]), tuple(answer.result["warnings"]))


async def _write_one_by_one(
    services: Services, principal: Principal, items: Sequence[_Item], embedded: Embedded, now: datetime
) -> dict[int, _Outcome]:
    outcomes: dict[int, _Outcome] = {}
    for item, text, vector in zip(items, embedded.texts, embedded.vectors, strict=True):
        alone = Embedded([text], embedded.generation, [vector])
        try:
            outcomes |= await _write(services, principal, [item], alone, now)
        except AlreadyExistsError as error:
            outcomes[item.position] = error
    return outcomes


async def _write(
    services: Services, principal: Principal, pending: Sequence[_Item], embedded: Embedded, now: datetime
) -> dict[int, _Outcome]:
    async def body(session: WriteSession) -> dict[int, _Outcome]:
        outcomes: dict[int, _Outcome] = {}
        items = list(pending)
        names = _lock_names(principal, items)
        if names:
            await session.lock(names)
            items = await _settle_known(session, items, outcomes)
        in_order = embedded.in_space(session.space)
        vectors = {item.position: vector for item, vector in zip(pending, in_order, strict=True)}
        note(memories=len(items))
        await _insert(services, principal, session, items, vectors, now, outcomes)
        await session.record_answers(_answers(pending, outcomes), time=now)
        return outcomes

    return await writing.transact(services, principal, body)


def _lock_names(principal: Principal, items: Sequence[_Item]) -> list[str]:
    names = set()
    for item in items:
        draft = item.prepared.draft
        if item.command.request_id:
            names.add(f"request:{principal.space_id}:{principal.owner}:{item.command.request_id}")
        if item.command.on_duplicate is not OnDuplicate.KEEP_BOTH:
            names.add(f"store:{principal.space_id}:{principal.owner}:{draft.scope}:{draft.project}")
        if item.key is not None:
            names.add(f"key:{principal.space_id}:{item.key.namespace}:{item.key.key}")
    return sorted(names)


async def _insert(
    services: Services,
    principal: Principal,
    session: WriteSession,
    items: Sequence[_Item],
    vectors: dict[int, Vector | None],
    now: datetime,
    outcomes: dict[int, _Outcome],
) -> None:
    holders = await session.key_holders([item.key for item in items if item.key])
    targets = await session.memories_by_id(sorted({link.target for item in items for link in item.links}))
    earlier = _Earlier()
    rows: dict[int, NewMemory] = {}
    repeats: dict[int, tuple[int, bool]] = {}
    for item in items:
        try:
            repeat = earlier.repeated_by(item)
            if repeat is not None:
                repeats[item.position] = repeat
                continue
            if item.key is not None and item.key in holders:
                raise writing.key_taken(item.key, holders[item.key])
            relations = await writing.resolve_links(session, item.links, known=targets)
        except LorebankError as error:
            outcomes[item.position] = error
            continue
        vector = vectors[item.position]
        row = writing.new_memory(
            item.prepared, vector, services=services, principal=principal, now=now, relations=relations
        )
        rows[item.position] = row
        earlier.add(item)
        if item.key is not None:
            holders[item.key] = row.id
    await session.insert(list(rows.values()))
    for position, row in rows.items():
        warnings = () if row.vector is not None else (writing.NOT_EMBEDDED,)
        memory = writing.as_memory(row, space=session.space)
        outcomes[position] = StoreResult(memory, Result.CREATED, warnings)
    for position, (first_position, same_request) in repeats.items():
        original = outcomes[first_position]
        if isinstance(original, StoreResult) and not same_request:
            original = StoreResult(original.memory, Result.UNCHANGED)
        outcomes[position] = original


class _Earlier:
    """The items of a batch that are to be written, for those behind them that say the same."""

    def __init__(self) -> None:
        self._by_identity: dict[Match, int] = {}
        self._by_request: dict[str, _Item] = {}

    def add(self, item: _Item) -> None:
        self._by_identity.setdefault(item.identity, item.position)
        if item.command.request_id:
            self._by_request[item.command.request_id] = item

    def repeated_by(self, item: _Item) -> tuple[int, bool] | None:
        """Position of the item that this one repeats, and whether it is the same request; None when it is new."""
        command = item.command
        if command.request_id in self._by_request:
            first = self._by_request[command.request_id]
            writing.check_request_hash(Answer(first.command.request_hash, {}), command.request_hash)
            return first.position, True
        if command.on_duplicate is not OnDuplicate.KEEP_BOTH and item.identity in self._by_identity:
            return self._by_identity[item.identity], False
        return None


def _answers(items: Sequence[_Item], outcomes: dict[int, _Outcome]) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for item in items:
        outcome = outcomes.get(item.position)
        if item.command.request_id and isinstance(outcome, StoreResult):
            result = {
                "id": outcome.memory.id,
                "revision": outcome.memory.revision,
                "result": int(outcome.result),
                "warnings": list(outcome.warnings),
            }
            answers.setdefault(item.command.request_id, Answer(item.command.request_hash, result))
    return answers


def refuse_batch_size(count: int, *, maximum: int) -> None:
    """Refuse an empty batch and one of more than ``maximum`` requests."""
    if not 1 <= count <= maximum:
        raise InvalidArgumentError(
            f"requests has {count} entries; send 1 to {maximum}.", field="requests", reason="BATCH_SIZE"
        )
