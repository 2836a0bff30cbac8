"""Vote: say what memories were worth, all ballots or none."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum

from lorebank_server.domain import limits, quality
from lorebank_server.domain.errors import FailedPreconditionError, InvalidArgumentError
from lorebank_server.domain.memory import Memory, State
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.quality import Tally
from lorebank_server.operations import revise, writing
from lorebank_server.operations.services import Services
from lorebank_server.ports.storage import Answer, BallotRecord, ReadSession, WriteSession

MAX_BALLOTS = 100


class Signal(IntEnum):
    """What a ballot says."""

    UNSPECIFIED = 0
    CITE = 1
    UPVOTE = 2
    DOWNVOTE = 3
    RETRACT = 4


_REPLACES = {Signal.UPVOTE: (Signal.DOWNVOTE,), Signal.DOWNVOTE: (Signal.UPVOTE,), Signal.CITE: ()}


@dataclass(frozen=True, slots=True)
class Ballot:
    """One signal on one memory. RETRACT withdraws the caller's ballots on it in this run."""

    id: str
    signal: Signal
    reason: str = ""


@dataclass(frozen=True, slots=True)
class VoteCommand:
    """Ballots cast in one run of an agent; an empty run is a run of its own."""

    ballots: tuple[Ballot, ...]
    run: str = ""
    request_id: str = ""
    request_hash: str = ""


async def vote(services: Services, principal: Principal, command: VoteCommand) -> list[Memory]:
    """Cast ballots in the order given; a principal counts once per memory, run and signal.

    Within a run an upvote takes the place of the caller's downvote on the same memory, and the reverse.

    Returns:
        The memories voted on, each once, in the order of the ballots, with their new counts.

    Raises:
        NotFoundError: A memory is not there, or not visible to the caller; no ballot was cast.
        FailedPreconditionError: A memory is not active, except to retract; no ballot was cast.
        InvalidArgumentError: A field is at fault.
    """
    _check(command)
    ids = list(dict.fromkeys(ballot.id for ballot in command.ballots))
    now = services.clock()

    async def body(session: WriteSession) -> list[Memory]:
        if command.request_id:
            await session.lock([f"request:{principal.space_id}:{principal.owner}:{command.request_id}"])
            answer = (await session.answers([command.request_id])).get(command.request_id)
            if answer is not None:
                writing.check_request_hash(answer, command.request_hash)
                return await _in_order(session, ids)
        memories = await session.lock_memories(ids)
        for ballot in command.ballots:
            _check_votable(ballot, memories)
        for ballot in command.ballots:
            await _cast(session, memories[ballot.id], ballot, command.run, now)
        await _recount(services, session, [memories[i] for i in ids])
        if command.request_id:
            await session.record_answers({command.request_id: Answer(command.request_hash, {})}, time=now)
        return await _in_order(session, ids)

    return await writing.transact(services, principal, body)


def _check(command: VoteCommand) -> None:
    if not 1 <= len(command.ballots) <= MAX_BALLOTS:
        raise InvalidArgumentError(
            f"ballots has {len(command.ballots)} entries; send 1 to {MAX_BALLOTS}.", field="ballots"
        )
    limits.check_text("run", command.run, maximum=limits.MAX_NAME_CHARS)
    for position, ballot in enumerate(command.ballots):
        limits.check_text(f"ballots[{position}].reason", ballot.reason, maximum=limits.MAX_REASON_CHARS)
        if ballot.signal is Signal.UNSPECIFIED:
            raise InvalidArgumentError(
                f"ballots[{position}].signal must be CITE, UPVOTE, DOWNVOTE or RETRACT.",
                field=f"ballots[{position}].signal",
            )
        if ballot.signal is Signal.CITE and not command.run:
            raise InvalidArgumentError(
                "run is empty: a citation names the run that used the memory, whose outcome settles it.", field="run"
            )


def _check_votable(ballot: Ballot, memories: dict[str, Memory]) -> None:
    memory = memories.get(ballot.id)
    if memory is None:
        raise writing.not_found(ballot.id)
    if ballot.signal is not Signal.RETRACT and memory.state is not State.ACTIVE:
        if memory.state is State.SUPERSEDED:
            revise.refuse_unless_editable(memory)
        raise FailedPreconditionError(
            f"The memory {memory.id} is {memory.state.name} and takes no votes; no ballot of this request was cast.",
            reason="NOT_ACTIVE",
            subject=memory.id,
            metadata={"state": memory.state.name},
        )


async def _cast(session: WriteSession, memory: Memory, ballot: Ballot, run: str, now: datetime) -> None:
    if ballot.signal is Signal.RETRACT:
        await session.withdraw(memory.uid, run, (Signal.CITE, Signal.UPVOTE, Signal.DOWNVOTE))
        return
    if _REPLACES[ballot.signal]:
        await session.withdraw(memory.uid, run, _REPLACES[ballot.signal])
    await session.cast([BallotRecord(memory.uid, run, int(ballot.signal), ballot.reason, now)])


async def _recount(services: Services, session: WriteSession, memories: Sequence[Memory]) -> None:
    tallies = await session.tallies([memory.uid for memory in memories])
    for memory in memories:
        half_life = writing.half_life_days(memory.draft, space=session.space, vocabulary=services.vocabulary)
        counted = tallies.get(memory.uid, [])
        total = _sum(counted)
        standing = replace(
            revise.standing_of(memory, half_life_days=half_life),
            reputation=quality.reputation(session.space.quality_policy, counted),
            upvotes=total.upvotes,
            downvotes=total.downvotes,
            citations=total.citations,
            successes=total.successes,
            failures=total.failures,
        )
        stale_time = quality.crossing_time(standing, session.space.stale_threshold)
        await session.record_standing(memory.uid, standing, stale_time=stale_time)


def _sum(tallies: Sequence[Tally]) -> Tally:
    return Tally(
        upvotes=sum(tally.upvotes for tally in tallies),
        downvotes=sum(tally.downvotes for tally in tallies),
        citations=sum(tally.citations for tally in tallies),
        successes=sum(tally.successes for tally in tallies),
        failures=sum(tally.failures for tally in tallies),
    )


async def _in_order(session: ReadSession, ids: Sequence[str]) -> list[Memory]:
    memories = await session.memories_by_id(ids)
    return [memories[memory_id] for memory_id in ids if memory_id in memories]
