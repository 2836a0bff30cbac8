"""Calls that write memories, and what they were worth."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Final, TypeAlias, Unpack
from uuid import uuid4

from google.protobuf.field_mask_pb2 import FieldMask

from lorebank._batches import MAX_ITEMS, Storable, batches
from lorebank._enums import OnDuplicateName, enum_number
from lorebank._fields import Corrections, LinkLike, MemoryFields, corrected_memory, new_link, new_memory
from lorebank._transport import Transport
from lorebank.v1 import store_pb2, vote_pb2, write_pb2
from lorebank.v1.memory_pb2 import Memory
from lorebank.v1.on_duplicate_pb2 import OnDuplicate

DEFAULT_BATCH_SIZE: Final = 100
BATCH_TIMEOUT_S: Final = 120.0
"""Least deadline of a batch, every item of which is embedded."""

Ballot: TypeAlias = vote_pb2.VoteRequest.Ballot


class MemoryWrites:
    """The part of ``AsyncClient`` that writes. Every call here may be repeated without harm."""

    _transport: Transport
    _space: str

    async def store(
        self,
        content: str = "",
        *,
        memory: Memory | None = None,
        links: Iterable[LinkLike] = (),
        on_duplicate: OnDuplicateName | int | None = None,
        validate_only: bool = False,
        request_id: str | None = None,
        **fields: Unpack[MemoryFields],
    ) -> store_pb2.StoreResponse:
        """Remember one thing.

        Args:
            content: One fact that can be understood alone, 5 to 8192 characters.
            memory: The whole memory, instead of ``content`` and ``fields``.
            links: Relations from it, as ``(type, memory id)`` or messages.
            on_duplicate: What to do when the space has it already. Default: an equal memory is answered UNCHANGED.
            validate_only: Answer what would happen, and write nothing.
            request_id: UUID under which a repeat within 24 hours writes nothing. Default: a fresh one.
            fields: What else to say about it, such as ``category``, ``tags``, ``scope`` or ``valid_from``.

        Returns:
            The memory as it stands now, and whether it was created or was there.

        Raises:
            LorebankError: See the call Store of the contract.
        """
        request = store_pb2.StoreRequest(
            space=self._space,
            memory=new_memory(content, memory, fields),
            links=[new_link(link) for link in links],
            on_duplicate=enum_number(OnDuplicate, on_duplicate or 0),
            validate_only=validate_only,
            request_id=request_id or str(uuid4()),
        )
        return await self._transport.call(self._transport.memories.Store, request)

    async def store_many(
        self,
        things: Iterable[Storable] | AsyncIterable[Storable],
        *,
        on_duplicate: OnDuplicateName | int | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: Callable[[int], None] | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[store_pb2.BatchStoreResponse.Item]:
        """Remember many things, and yield what became of each, in order.

        The input is read as it is needed and sent in batches of at most 3 MiB. Items fail one by one; ``error_of``
        makes an exception of a failure.

        Args:
            things: Memories, or store requests where something else is to be said about one.
            on_duplicate: As in ``store``, for the items that do not say it themselves.
            batch_size: Most items in a batch, 1 to 500.
            progress: Called after each batch with the number of items answered so far.
            timeout_s: Seconds that one batch may take. Default: the client's, but at least 120.

        Raises:
            LorebankError: A whole batch failed. Items yielded before are stored, later ones are not; those of the
                batch itself may be.
        """
        if not 1 <= batch_size <= MAX_ITEMS:
            raise ValueError(f"batch_size must be from 1 to {MAX_ITEMS}.")
        policy = enum_number(OnDuplicate, on_duplicate or 0)
        deadline_s = timeout_s or max(self._transport.timeout_s, BATCH_TIMEOUT_S)
        done = 0
        async for batch in batches(things, on_duplicate=policy, max_items=batch_size):
            request = store_pb2.BatchStoreRequest(space=self._space, requests=batch)
            answer = await self._transport.call(self._transport.memories.BatchStore, request, timeout_s=deadline_s)
            done += len(batch)
            if progress is not None:
                progress(done)
            for item in answer.items:
                yield item

    async def update(
        self,
        memory: str | Memory,
        *,
        mask: Iterable[str] | None = None,
        reason: str = "",
        etag: str = "",
        request_id: str | None = None,
        **corrections: Unpack[Corrections],
    ) -> write_pb2.UpdateMemoryResponse:
        """Correct a memory whose words were wrong: same id, next revision.

        Args:
            memory: Its id with ``corrections``, or the changed message with ``mask``.
            mask: Paths to take from the message, such as "card.summary". Default: whatever is not empty.
            reason: Why, for the history.
            etag: Fails with ``Aborted`` unless the memory still has it. A message brings its own.
            request_id: UUID under which a repeat within 24 hours writes nothing. Default: a fresh one.
            corrections: New values by field; None clears one.

        Returns:
            The memory as it stands now, and as it stood before.

        Raises:
            Aborted: The memory has changed since ``etag``.
            FailedPrecondition: It is superseded or deleted; the message says what to change instead.
        """
        if isinstance(memory, Memory):
            if corrections or etag:
                raise TypeError("Change the message itself: a message takes neither fields nor an etag.")
            update_mask = None if mask is None else FieldMask(paths=mask)
        elif corrections and mask is None:
            memory = corrected_memory(memory, etag, corrections)
            update_mask = FieldMask(paths=corrections)
        else:
            raise TypeError("Give the fields to change; a mask goes with a message.")
        request = write_pb2.UpdateMemoryRequest(
            space=self._space,
            memory=memory,
            update_mask=update_mask,
            reason=reason,
            request_id=request_id or str(uuid4()),
        )
        return await self._transport.call(self._transport.memories.UpdateMemory, request)

    async def delete(self, id: str, *, etag: str = "") -> Memory:
        """Hide a memory, restorably; a deleted one stays as it is.

        Raises:
            Aborted: It has changed since ``etag``.
        """
        request = write_pb2.DeleteMemoryRequest(space=self._space, id=id, etag=etag)
        answer = await self._transport.call(self._transport.memories.DeleteMemory, request)
        return answer.memory

    async def undelete(self, id: str, *, etag: str = "") -> Memory:
        """Bring a deleted or archived memory back; an active one stays as it is.

        Raises:
            FailedPrecondition: A living successor holds its place.
        """
        request = write_pb2.UndeleteMemoryRequest(space=self._space, id=id, etag=etag)
        answer = await self._transport.call(self._transport.memories.UndeleteMemory, request)
        return answer.memory

    async def supersede(
        self,
        ids: str | Iterable[str],
        content: str = "",
        *,
        memory: Memory | None = None,
        reason: str = "",
        request_id: str | None = None,
        **fields: Unpack[MemoryFields],
    ) -> store_pb2.SupersedeResponse:
        """Replace memories because the world changed: a new id, and the old ones stay readable.

        Args:
            ids: One active memory to replace, or up to 100.
            content: What is true now.
            memory: The whole new memory, instead of ``content`` and ``fields``.
            reason: Why the world changed, for the history.
            request_id: UUID under which a repeat within 24 hours writes nothing. Default: a fresh one.
            fields: What else to say about the new memory.

        Raises:
            FailedPrecondition: One of them is not active; the message names its successor.
        """
        request = store_pb2.SupersedeRequest(
            space=self._space,
            ids=[ids] if isinstance(ids, str) else ids,
            memory=new_memory(content, memory, fields),
            reason=reason,
            request_id=request_id or str(uuid4()),
        )
        return await self._transport.call(self._transport.memories.Supersede, request)

    async def vote(
        self,
        ballots: Iterable[Ballot],
        *,
        run: str = "",
        retrieval: str = "",
        request_id: str | None = None,
    ) -> vote_pb2.VoteResponse:
        """Say what memories were worth; all ballots count, or none.

        Args:
            ballots: 1 to 100 words about memories.
            run: Run in which they were used; needed to cite.
            retrieval: The ``retrieval`` of the answer that showed them.
            request_id: UUID under which a repeat within 24 hours writes nothing. Default: a fresh one.

        Returns:
            The memories with their new quality.

        Raises:
            FailedPrecondition: One of them is not active; the message names its successor.
        """
        request = vote_pb2.VoteRequest(
            space=self._space,
            ballots=ballots,
            run=run,
            retrieval=retrieval,
            request_id=request_id or str(uuid4()),
        )
        return await self._transport.call(self._transport.memories.Vote, request)

    async def cite(self, *ids: str, run: str, reason: str = "", retrieval: str = "") -> vote_pb2.VoteResponse:
        """Say that memories were used in a run, whose outcome will tell what for."""
        ballots = _ballots(ids, vote_pb2.VoteRequest.SIGNAL_CITE, reason)
        return await self.vote(ballots, run=run, retrieval=retrieval)

    async def upvote(self, *ids: str, run: str = "", reason: str = "") -> vote_pb2.VoteResponse:
        """Say that memories helped."""
        return await self.vote(_ballots(ids, vote_pb2.VoteRequest.SIGNAL_UPVOTE, reason), run=run)

    async def downvote(self, *ids: str, run: str = "", reason: str = "") -> vote_pb2.VoteResponse:
        """Say that memories were wrong or misleading."""
        return await self.vote(_ballots(ids, vote_pb2.VoteRequest.SIGNAL_DOWNVOTE, reason), run=run)

    async def retract(self, *ids: str, run: str = "", reason: str = "") -> vote_pb2.VoteResponse:
        """Withdraw what was said about memories in the same run."""
        return await self.vote(_ballots(ids, vote_pb2.VoteRequest.SIGNAL_RETRACT, reason), run=run)


def _ballots(ids: Iterable[str], signal: vote_pb2.VoteRequest.Signal.ValueType, reason: str) -> Iterable[Ballot]:
    return [Ballot(id=memory_id, signal=signal, reason=reason) for memory_id in ids]
