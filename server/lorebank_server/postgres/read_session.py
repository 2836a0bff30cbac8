"""Reads on behalf of one principal."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
from pgvector import HalfVector

from lorebank_server.domain.memory import Change, Memory, Relation, Revision, Scope, State
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.quality import multiplier
from lorebank_server.domain.ranking import Candidate
from lorebank_server.domain.selector import Selector
from lorebank_server.domain.space import Space
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.storage import (
    Answer,
    Match,
    NaturalKey,
    OrderBy,
    Position,
    RecallPlan,
    TermWeights,
)
from lorebank_server.postgres.rows import decode_draft, memory_from
from lorebank_server.postgres.statements import statements

ANSWERS_KEPT = timedelta(hours=24)


class PostgresReadSession:
    """One connection, set to one caller."""

    def __init__(self, connection: Any, principal: Principal, space: Space, now: datetime) -> None:
        """Read for ``principal``; quality is taken as of ``now``, when the session began."""
        self._connection = connection
        self._principal = principal
        self._space = space
        self._now = now
        self._memories = statements("memories")
        self._recall = statements("recall")

    @property
    def space(self) -> Space:
        """The principal's space as it stood when the session began."""
        return self._space

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """Nothing happens to a session whose connection is not its own to give away, such as one that writes."""
        yield

    async def memories_by_id(self, ids: Sequence[str]) -> dict[str, Memory]:
        """The visible memories among ``ids``, in whatever state."""
        rows = await self._rows("by_id", list(ids)) if ids else []
        return {memory.id: memory for memory in self._hydrate(rows)}

    async def memories_by_uid(self, uids: Sequence[UUID]) -> dict[UUID, Memory]:
        """The visible memories among ``uids``, in whatever state."""
        rows = await self._rows("by_uid", list(uids)) if uids else []
        return {memory.uid: memory for memory in self._hydrate(rows)}

    async def memory_by_key(self, key: str) -> Memory | None:
        """The living visible memory with this natural key; the caller's own before any other."""
        memories = self._hydrate(await self._rows("by_key", key))
        return memories[0] if memories else None

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
        buckets = await self._visible_buckets(selector)
        rows = await self._connection.fetch(
            self._memories["listed"],
            self._space.number,
            buckets,
            *standing_arguments(selector, now),
            *selection(selector),
            str(order_by),
            self._space.quality_policy,
            after.value if after else None,
            after.uid if after else None,
            limit,
            descending,
        )
        return [(memory_from(row, self._space, now), Position(row["value"], row["uid"])) for row in rows]

    async def count_memories(self, selector: Selector, *, now: datetime) -> int:
        """How many memories are selected."""
        buckets = await self._visible_buckets(selector)
        arguments = [*standing_arguments(selector, now), *selection(selector)]
        count = await self._connection.fetchval(self._memories["counted"], self._space.number, buckets, *arguments)
        return int(count)

    async def revisions(self, uid: UUID, *, after: int, limit: int) -> list[Revision]:
        """Revisions of a visible memory with a number above ``after``, oldest first."""
        current = (await self.memories_by_uid([uid])).get(uid)
        if current is None:
            return []
        rows = await self._connection.fetch(self._memories["revisions"], uid, after, limit)
        return [_revision(row, current) for row in rows]

    async def relations_of(
        self, uids: Sequence[UUID], *, types: Sequence[str], min_strength: float, limit: int, among: bool = False
    ) -> list[tuple[Relation, UUID, UUID]]:
        """Edges between what is visible, with one end or, ``among`` them, both ends in ``uids``; strongest first."""
        if not uids:
            return []
        rows = await self._rows("relations_of", list(uids), list(types), min_strength, limit, self._now, among)
        return [
            (
                Relation(
                    id=row["id"],
                    source=row["source_id"],
                    type=row["type"],
                    target=row["target_id"],
                    strength=row["strength"],
                    context=row["context"],
                    create_time=row["create_time"],
                ),
                row["source"],
                row["target"],
            )
            for row in rows
        ]

    async def answers(self, request_ids: Sequence[str]) -> dict[str, Answer]:
        """What the principal's earlier requests of these ids were answered, for 24 hours."""
        if not request_ids:
            return {}
        since = self._now - ANSWERS_KEPT
        rows = await self._rows("answers", self._principal.owner, list(request_ids), since)
        return {row["request_id"]: Answer(row["request_hash"], msgspec.json.decode(row["result"])) for row in rows}

    async def exact_matches(self, content_hashes: Sequence[str]) -> list[Match]:
        """Active memories of the principal with one of these content hashes, the oldest of equals."""
        if not content_hashes:
            return []
        hashes = [bytes.fromhex(content_hash) for content_hash in content_hashes]
        rows = await self._rows("exact_matches", self._principal.owner, hashes)
        return [
            Match(row["content_hash"].hex(), row["scope"], row["project"], row["subject"], row["id"]) for row in rows
        ]

    async def key_holders(self, keys: Sequence[NaturalKey]) -> dict[NaturalKey, str]:
        """Ids of the living visible memories that hold these natural keys."""
        if not keys:
            return {}
        rows = await self._rows("key_holders", [key.namespace for key in keys], [key.key for key in keys])
        return {NaturalKey(row["key_namespace"], row["key"]): row["id"] for row in rows}

    async def plan_recall(self, text: str, selector: Selector) -> RecallPlan:
        """Resolve visibility and the query's terms."""
        row = await self._connection.fetchrow(
            self._recall["plan"], self._space.number, text, self._space.language, *self._visibility(selector)
        )
        rarest_first = sorted(zip(row["frequencies"], row["terms"], strict=True))
        return RecallPlan(
            space_id=self._space.number,
            generation=self._space.embedding_model,
            buckets=tuple(row["buckets"]),
            terms=tuple(term for _, term in rarest_first),
            frequencies=tuple(frequency for frequency, _ in rarest_first),
            documents=row["documents"],
            total_length=row["total_length"],
        )

    async def lexical_candidates(
        self, plan: RecallPlan, weights: TermWeights, selector: Selector, *, now: datetime, limit: int
    ) -> list[Candidate]:
        """The lexical leg: at most ``limit`` visible and selected memories by words, without their cosines."""
        policy = self._space.quality_policy
        rows = await self._connection.fetch(
            self._recall["lexical_candidates"],
            self._space.number,
            list(plan.buckets),
            *standing_arguments(selector, now),
            *selection(selector),
            list(weights.rarest),
            list(weights.terms),
            list(weights.weights),
            weights.average_length,
            limit,
            policy,
        )
        return [
            Candidate(uid, memory_id, None, score, multiplier(policy, strength), matched)
            for uid, memory_id, score, strength, matched in rows
        ]

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

        Those of ``lexical``, and those of ``dense`` that are visible and selected. A cosine that the index gave is
        taken as it is; the missing ones are computed here.
        """
        if not dense and not lexical:
            return []
        by_words = {candidate.uid for candidate in lexical}
        states, _, fresh_at = standing_arguments(selector, now)
        policy = self._space.quality_policy
        rows = await self._connection.fetch(
            self._recall["confirm"],
            self._space.number,
            [uid for uid in dense if uid not in by_words],
            states,
            fresh_at,
            *selection(selector),
            list(weights.terms),
            list(weights.weights),
            weights.average_length,
            now,
            policy,
            HalfVector(vector),
            [uid for uid in {**dense, **dict.fromkeys(by_words)} if dense.get(uid) is None],
            self._space.embedding_model,
        )
        cosines = {**dense, **{uid: score for uid, memory_id, score, _, _ in rows if memory_id is None}}
        return [
            *(
                Candidate(found.uid, found.id, cosines.get(found.uid), found.lexical, found.multiplier, found.matched)
                for found in lexical
            ),
            *(
                Candidate(uid, memory_id, cosines.get(uid), score, multiplier(policy, strength), matched or ())
                for uid, memory_id, score, strength, matched in rows
                if memory_id is not None
            ),
        ]

    async def vector_of(self, uid: UUID) -> Vector | None:
        """The stored vector of a visible memory, or None while it has none."""
        stored = await self._connection.fetchval(self._recall["vector_of"], uid, self._space.embedding_model)
        return None if stored is None else np.asarray(stored.to_numpy(), dtype=np.float32)

    async def _rows(self, name: str, *arguments: Any) -> list[Any]:
        return list(await self._connection.fetch(self._memories[name], self._space.number, *arguments))

    def _hydrate(self, rows: Sequence[Any]) -> list[Memory]:
        return [memory_from(row, self._space, self._now) for row in rows]

    async def _visible_buckets(self, selector: Selector) -> list[int]:
        return list(
            await self._connection.fetchval(
                self._memories["visible_buckets"], self._space.number, *self._visibility(selector)
            )
        )

    def _visibility(self, selector: Selector) -> tuple[Any, ...]:
        principal = self._principal
        return principal.owner, principal.project, _numbers(selector.scopes), selector.project


def standing_arguments(selector: Selector, now: datetime) -> tuple[list[int] | None, datetime, datetime | None]:
    """States, the time, and the time past which a memory must become stale to count as fresh."""
    return _numbers(selector.states), now, None if selector.include_stale else now


def _revision(row: Any, current: Memory) -> Revision:
    memory = replace(
        current,
        draft=decode_draft(row["body"]),
        state=State(row["state"]),
        revision=row["revision"],
        content_hash=row["content_hash"].hex(),
        update_time=row["create_time"],
        delete_time=row["create_time"] if row["state"] == State.DELETED else None,
        superseded_by=current.superseded_by if row["state"] == State.SUPERSEDED else "",
    )
    return Revision(
        memory=memory,
        change=Change(row["change"]),
        actor=row["actor"],
        reason=row["reason"],
        run=row["run"],
        conversation=row["conversation"],
        create_time=row["create_time"],
    )


def selection(selector: Selector) -> tuple[Any, ...]:
    """The arguments of the SQL function ``selects``, in its order."""
    return (
        _numbers(selector.kinds),
        *(
            list(values) or None
            for values in (
                selector.categories,
                selector.collections,
                selector.tags_all,
                selector.tags_any,
                selector.subjects,
                selector.agents,
                selector.runs,
                selector.owners,
                selector.ids,
            )
        ),
        selector.created_after,
        selector.created_before,
        int(selector.polarity) or None,
    )


def _numbers(values: Sequence[int | Scope]) -> list[int] | None:
    return [int(value) for value in values] or None
