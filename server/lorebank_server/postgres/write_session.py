"""Reads and writes on behalf of one principal, in one transaction."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from pgvector import HalfVector

from lorebank_server.domain.memory import Draft, Memory
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.quality import Standing, Tally
from lorebank_server.domain.space import Space
from lorebank_server.domain.visibility import key_namespace
from lorebank_server.ports.storage import Answer, BallotRecord, NewMemory, NewRevision, NewText
from lorebank_server.postgres.read_session import PostgresReadSession
from lorebank_server.postgres.rows import encode_draft, never
from lorebank_server.postgres.statements import statements

_Bucket = tuple[int, str, str]


class PostgresWriteSession(PostgresReadSession):
    """One transaction, set to one caller."""

    def __init__(self, connection: Any, principal: Principal, space: Space, now: datetime) -> None:
        super().__init__(connection, principal, space, now)
        self._writes = statements("writes")

    async def lock(self, names: Sequence[str]) -> None:
        """Hold these names until the transaction ends; taken in one order, so that nobody waits in a circle."""
        await self._connection.execute(self._writes["lock"], list(names))

    async def lock_memories(self, ids: Sequence[str]) -> dict[str, Memory]:
        """As ``memories_by_id``, held against every other writer of these memories until the transaction ends.

        Held by name, not by row: policies let nobody lock the row of a memory that he may only vote on.
        """
        await self.lock([f"memory:{self._space.number}:{memory_id}" for memory_id in ids])
        return await self.memories_by_id(ids)

    async def insert(self, memories: Sequence[NewMemory]) -> None:
        """Write new memories with their history, vectors and edges in one statement."""
        if not memories:
            return
        buckets = await self._buckets(memories)
        embedded = [memory for memory in memories if memory.vector is not None]
        edges = [
            {"source": memory.uid, "create_time": memory.create_time, **msgspec.to_builtins(relation)}
            for memory in memories
            for relation in memory.relations
        ]
        await self._connection.execute(
            self._writes["insert"],
            self._space.number,
            _json([self._row(memory, buckets) for memory in memories]),
            self._space.language,
            self._space.embedding_model,
            [memory.uid for memory in embedded],
            [memory.text_hash for memory in embedded],
            [HalfVector(memory.vector) for memory in embedded if memory.vector is not None],
            _json(edges),
        )
        await self._await_embedding([memory.uid for memory in memories if memory.vector is None])

    async def revise(self, revision: NewRevision) -> None:
        """Write the next revision of a locked memory."""
        memory, draft, text = revision.memory, revision.draft, revision.text
        await self._connection.execute(
            self._writes["revise"],
            self._space.number,
            memory.uid,
            memory.revision + 1,
            int(revision.state),
            encode_draft(draft),
            bytes.fromhex(revision.content_hash),
            int(draft.kind),
            int(draft.polarity),
            draft.category,
            draft.collection,
            draft.subject,
            list(draft.tags),
            draft.provenance.agent,
            draft.provenance.run,
            draft.provenance.conversation,
            revision.standing.half_life_days,
            never(revision.stale_time),
            never(draft.valid_until),
            revision.time,
            revision.delete_time,
            revision.keep_successor,
            text.text if text else None,
            self._space.language,
            revision.superseded_by,
            int(revision.change),
            revision.actor,
            revision.reason,
            revision.run,
            revision.conversation,
        )
        if text is not None:
            await self._embed(memory.uid, text)

    async def cast(self, ballots: Sequence[BallotRecord]) -> None:
        """Record ballots; one that exists already gets the new reason."""
        await self._connection.executemany(
            self._writes["cast"],
            [
                (
                    self._space.number,
                    ballot.memory,
                    self._principal.owner,
                    ballot.run,
                    ballot.signal,
                    ballot.reason,
                    ballot.time,
                )
                for ballot in ballots
            ],
        )

    async def unlink_superseded(self, memory: UUID) -> None:
        """Remove the edge from whatever superseded this memory."""
        await self._connection.execute(self._writes["unlink_superseded"], self._space.number, memory)

    async def withdraw(self, memory: UUID, run: str, signals: Sequence[int]) -> None:
        """Remove the principal's ballots of these signals on a memory in a run."""
        await self._connection.execute(
            self._writes["withdraw"], self._space.number, memory, self._principal.owner, run, list(signals)
        )

    async def tallies(self, memories: Sequence[UUID]) -> dict[UUID, list[Tally]]:
        """Per voter counts of every memory given, withdrawn ballots left out."""
        rows = await self._connection.fetch(self._writes["tallies"], self._space.number, list(memories))
        counted: dict[UUID, list[Tally]] = {}
        for row in rows:
            tally = Tally(upvotes=row["upvotes"], downvotes=row["downvotes"], citations=row["citations"])
            counted.setdefault(row["memory"], []).append(tally)
        return counted

    async def record_standing(self, memory: UUID, standing: Standing, *, stale_time: datetime | None) -> None:
        """Write what follows from a memory's tallies."""
        await self._connection.execute(
            self._writes["record_standing"],
            self._space.number,
            memory,
            standing.upvotes,
            standing.downvotes,
            standing.citations,
            standing.successes,
            standing.failures,
            standing.reputation,
            standing.reference_time,
            never(stale_time),
        )

    async def record_answers(self, answers: Mapping[str, Answer], *, time: datetime) -> None:
        """Keep the answers to requests, by request id, in the same transaction as what they did."""
        if not answers:
            return
        rows = [
            {"request_id": request_id, "request_hash": answer.request_hash, "result": answer.result}
            for request_id, answer in answers.items()
        ]
        await self._connection.execute(
            self._writes["record_answers"], self._space.number, self._principal.owner, _json(rows), time
        )

    async def _embed(self, uid: UUID, text: NewText) -> None:
        model = self._space.embedding_model if text.vector is not None else None
        await self._connection.execute(self._writes["unembed"], self._space.number, uid, model)
        if text.vector is not None:
            await self._connection.execute(self._writes["embed"], uid, model, text.text_hash, HalfVector(text.vector))
        else:
            await self._await_embedding([uid])

    async def _await_embedding(self, uids: Sequence[UUID]) -> None:
        """Have memories embedded later that could not be now."""
        if uids:
            await self._connection.execute(self._writes["await_embedding"], uids)

    async def _buckets(self, memories: Sequence[NewMemory]) -> dict[_Bucket, int]:
        places = sorted({_bucket(memory.draft, memory.owner) for memory in memories})
        columns = [list(column) for column in zip(*places, strict=True)]
        found: dict[_Bucket, int] = {}
        for attempt in range(2):
            rows = await self._connection.fetch(self._writes["bucket_ids"], self._space.number, *columns)
            found = {(row["scope"], row["owner"], row["project"]): row["id"] for row in rows}
            if len(found) == len(places) or attempt:
                break
            await self._connection.execute(self._writes["open_buckets"], self._space.number, *columns)
        return found

    def _row(self, memory: NewMemory, buckets: Mapping[_Bucket, int]) -> dict[str, Any]:
        draft, standing = memory.draft, memory.standing
        return {
            "uid": memory.uid,
            "id": memory.id,
            "bucket_id": buckets[_bucket(draft, memory.owner)],
            "key": draft.key or None,
            "key_namespace": key_namespace(draft.scope, memory.owner, draft.project),
            "owner": memory.owner,
            "body": msgspec.Raw(encode_draft(draft).encode()),
            "kind": draft.kind,
            "polarity": draft.polarity,
            "category": draft.category,
            "collection": draft.collection,
            "subject": draft.subject,
            "tags": draft.tags,
            "agent": draft.provenance.agent,
            "run": draft.provenance.run,
            "conversation": draft.provenance.conversation,
            "content_hash": memory.content_hash,
            "text": memory.text,
            "reputation": standing.reputation,
            "half_life_days": standing.half_life_days,
            "reference_time": standing.reference_time,
            "stale_time": memory.stale_time,
            "valid_until": draft.valid_until,
            "create_time": memory.create_time,
            "reason": memory.reason,
        }


def _bucket(draft: Draft, owner: str) -> _Bucket:
    return int(draft.scope), owner if draft.scope.private else "", draft.project


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
