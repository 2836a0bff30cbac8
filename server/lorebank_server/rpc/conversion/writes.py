"""Requests that write, and their answers."""

from collections.abc import Sequence

from lorebank.v1 import store_pb2, vote_pb2, write_pb2
from lorebank_server.domain.errors import LorebankError
from lorebank_server.domain.memory import Link, Memory
from lorebank_server.operations.revise import UpdateCommand
from lorebank_server.operations.store import OnDuplicate, StoreCommand, StoreResult
from lorebank_server.operations.supersede import SupersedeCommand, SupersedeResult
from lorebank_server.operations.vote import Ballot, Signal, VoteCommand
from lorebank_server.rpc import status
from lorebank_server.rpc.conversion.drafts import to_draft
from lorebank_server.rpc.conversion.masks import to_edit
from lorebank_server.rpc.conversion.memories import write_memory
from lorebank_server.rpc.conversion.requests import request_identity, require


def to_store_command(request: store_pb2.StoreRequest) -> StoreCommand:
    """One memory to store."""
    request_id, request_hash = request_identity(request)
    return StoreCommand(
        draft=to_draft(request.memory),
        on_duplicate=OnDuplicate(request.on_duplicate),
        request_id=request_id,
        request_hash=request_hash,
        links=tuple(
            Link(link.type, link.target, link.strength if link.HasField("strength") else 1.0, link.context)
            for link in request.links
        ),
        validate_only=request.validate_only,
    )


def from_store_result(result: StoreResult) -> store_pb2.StoreResponse:
    """The answer to a store."""
    response = store_pb2.StoreResponse(warnings=result.warnings)
    response.result = int(result.result)  # type: ignore[assignment]
    write_memory(result.memory, response.memory)
    return response


def from_outcomes(outcomes: Sequence[StoreResult | LorebankError]) -> store_pb2.BatchStoreResponse:
    """The answer to a batch, item by item."""
    response = store_pb2.BatchStoreResponse()
    for outcome in outcomes:
        item = response.items.add()
        if isinstance(outcome, LorebankError):
            item.failure.code = status.number_of(status.code_of(outcome))
            item.failure.reason = outcome.reason
            item.failure.message = outcome.message
        else:
            item.response.CopyFrom(from_store_result(outcome))
    return response


def to_supersede_command(request: store_pb2.SupersedeRequest) -> SupersedeCommand:
    """What replaces what."""
    request_id, request_hash = request_identity(request)
    return SupersedeCommand(
        ids=tuple(request.ids),
        draft=to_draft(request.memory),
        reason=request.reason,
        request_id=request_id,
        request_hash=request_hash,
    )


def from_supersede_result(result: SupersedeResult) -> store_pb2.SupersedeResponse:
    """The answer to a replacement."""
    response = store_pb2.SupersedeResponse()
    write_memory(result.memory, response.memory)
    for memory in result.superseded:
        write_memory(memory, response.superseded.add())
    return response


def to_update_command(request: write_pb2.UpdateMemoryRequest) -> UpdateCommand:
    """A change to the words of a memory."""
    require("memory.id", request.memory.id)
    request_id, request_hash = request_identity(request)
    return UpdateCommand(
        id=request.memory.id,
        edit=to_edit(request),
        etag=request.memory.etag,
        reason=request.reason,
        request_id=request_id,
        request_hash=request_hash,
    )


def from_update_result(result: tuple[Memory, Memory]) -> write_pb2.UpdateMemoryResponse:
    """The answer to a correction: the memory as it is, and as it was."""
    response = write_pb2.UpdateMemoryResponse()
    write_memory(result[0], response.memory)
    write_memory(result[1], response.previous)
    return response


def to_vote_command(request: vote_pb2.VoteRequest) -> VoteCommand:
    """Ballots of one run."""
    request_id, request_hash = request_identity(request)
    return VoteCommand(
        ballots=tuple(Ballot(ballot.id, Signal(ballot.signal), ballot.reason) for ballot in request.ballots),
        run=request.run,
        request_id=request_id,
        request_hash=request_hash,
    )


def from_voted(memories: Sequence[Memory]) -> vote_pb2.VoteResponse:
    """The answer to ballots: the memories with what became of them."""
    response = vote_pb2.VoteResponse()
    for memory in memories:
        write_memory(memory, response.memories.add())
    return response
