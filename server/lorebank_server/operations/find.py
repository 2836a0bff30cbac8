"""Find: recall by meaning and by words, ranked and explained."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log
from uuid import UUID

from lorebank_server.domain import limits
from lorebank_server.domain.errors import EmbedderUnavailableError, FailedPreconditionError, InvalidArgumentError
from lorebank_server.domain.memory import Memory
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.ranking import CANDIDATES_PER_LEG, Candidate, Mode, Ranked, Score, rank
from lorebank_server.domain.selector import Selector
from lorebank_server.operations import writing
from lorebank_server.operations.selecting import resolve
from lorebank_server.operations.services import Services
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.stages import stage
from lorebank_server.ports.storage import LexicalMatch, ReadSession, RecallPlan, TermWeights

DEFAULT_LIMIT = 10
MAX_LIMIT = 100
MAX_MATCHES = 1000


@dataclass(frozen=True, slots=True)
class FindQuery:
    """What to look for.

    Attributes:
        query: Natural language; empty when ``similar_to`` names a memory instead.
        limit: 1 to 100; 0 means 10.
        min_similarity: Least exact cosine; None does not withhold anything.
    """

    query: str = ""
    similar_to: str = ""
    selector: Selector = Selector()
    mode: Mode = Mode.HYBRID
    limit: int = DEFAULT_LIMIT
    min_similarity: float | None = None
    skip_usage: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found, with every factor of its score and the query's lexemes that it contains."""

    memory: Memory
    score: Score
    matched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FindResult:
    """Hits, best first.

    Attributes:
        below_threshold: Candidates withheld by ``min_similarity``.
        degraded: What did not work and how the answer suffers; empty when all is well.
    """

    hits: tuple[Hit, ...]
    below_threshold: int = 0
    degraded: tuple[str, ...] = ()


async def find(services: Services, principal: Principal, query: FindQuery) -> FindResult:
    """Recall memories.

    Raises:
        InvalidArgumentError: A field is at fault.
        NotFoundError: ``similar_to`` is not visible.
        FailedPreconditionError: SEMANTIC recall from a memory that is not embedded yet.
    """
    _check(query)
    selector = resolve(query.selector, services.vocabulary)
    now = services.clock()
    embedding = asyncio.create_task(_embed(services, query))
    try:
        ranked, hydrated, below_threshold, degraded = await _recall(
            services, principal, query, selector, embedding, now
        )
    finally:
        embedding.cancel()
    if not query.skip_usage:
        services.usage.note(principal.space_id, [entry.candidate.uid for entry in ranked], time=now)
    hits = tuple(
        Hit(hydrated[entry.candidate.uid], entry.score, entry.candidate.matched)
        for entry in ranked
        if entry.candidate.uid in hydrated
    )
    return FindResult(hits, below_threshold, degraded)


def _check(query: FindQuery) -> None:
    if not query.query.strip() and not query.similar_to:
        raise InvalidArgumentError(
            "query is empty: say what you look for, or name a memory in similar_to.", field="query"
        )
    limits.check_text("query", query.query, maximum=limits.MAX_QUERY_CHARS)
    if not 0 <= query.limit <= MAX_LIMIT:
        raise InvalidArgumentError(f"limit must be from 1 to {MAX_LIMIT}, or 0 for {DEFAULT_LIMIT}.", field="limit")
    if query.min_similarity is not None:
        if not 0.0 <= query.min_similarity <= 1.0:
            raise InvalidArgumentError("min_similarity must be a number from 0 to 1.", field="min_similarity")
        if query.mode is Mode.LEXICAL:
            raise InvalidArgumentError(
                "min_similarity bounds the cosine, which LEXICAL does not compute; leave it out or use HYBRID.",
                field="min_similarity",
            )


async def _embed(services: Services, query: FindQuery) -> Vector | None:
    if query.mode is Mode.LEXICAL or query.similar_to:
        return None
    with stage("embed"):
        try:
            return await services.embedder.embed_query(query.query)
        except EmbedderUnavailableError:
            return None


async def _recall(
    services: Services,
    principal: Principal,
    query: FindQuery,
    selector: Selector,
    embedding: asyncio.Task[Vector | None],
    now: datetime,
) -> tuple[list[Ranked], dict[UUID, Memory], int, tuple[str, ...]]:
    async with services.storage.reading(principal) as session:
        mode = query.mode
        degraded: tuple[str, ...] = ()
        origin = await _origin(session, query)
        text = origin.draft.content if origin else query.query
        known_vector = await session.vector_of(origin.uid) if origin and mode is not Mode.LEXICAL else None
        plan = await session.plan_recall("" if mode is Mode.SEMANTIC else text, selector)
        weights = _weigh(plan)
        meaning = asyncio.create_task(_by_meaning(services, plan, embedding, known_vector, selector, now))
        try:
            lexical = await _by_words(session, plan, weights, selector, now)
            vector = known_vector if known_vector is not None else await embedding
            # What words found is confirmed while the vector index searches.
            candidates = await _confirm(session, {}, lexical, weights, vector, selector, now)
            dense = await meaning
        finally:
            meaning.cancel()
        if vector is None and mode is not Mode.LEXICAL:
            degraded = (_not_embedded(origin, mode),)
            if mode is Mode.SEMANTIC:
                plan = await session.plan_recall(text, selector)
                weights = _weigh(plan)
                lexical = await _by_words(session, plan, weights, selector, now)
                candidates = await _confirm(session, {}, lexical, weights, None, selector, now)
            mode = Mode.LEXICAL
        by_words = {match.uid for match in lexical}
        others = {uid: similarity for uid, similarity in dense.items() if uid not in by_words}
        candidates += await _confirm(session, others, [], weights, vector, selector, now)
        if origin is not None:
            candidates = [candidate for candidate in candidates if candidate.uid != origin.uid]
        with stage("rank"):
            ranked, below_threshold = _cut(candidates, mode, query)
        with stage("hydrate"):
            hydrated = await session.memories_by_uid([entry.candidate.uid for entry in ranked])
    return ranked, hydrated, below_threshold, degraded


async def _origin(session: ReadSession, query: FindQuery) -> Memory | None:
    """The memory whose likes are wanted, if one is."""
    if not query.similar_to:
        return None
    origin = (await session.memories_by_id([query.similar_to])).get(query.similar_to)
    if origin is None:
        raise writing.not_found(query.similar_to)
    return origin


def _not_embedded(origin: Memory | None, mode: Mode) -> str:
    """How an answer without the dense leg is worse than it should be."""
    if origin is None:
        return "embedder: unavailable, found by words only, min_similarity not applied"
    if mode is Mode.SEMANTIC:
        raise FailedPreconditionError(
            f"The memory {origin.id} is not embedded yet; use HYBRID or LEXICAL for now.",
            reason="NOT_EMBEDDED",
            subject=origin.id,
        )
    return f"{origin.id}: not embedded yet, found by words only, min_similarity not applied"


async def _by_words(
    session: ReadSession, plan: RecallPlan, weights: TermWeights, selector: Selector, now: datetime
) -> list[LexicalMatch]:
    if not weights.terms:
        return []
    with stage("lexical"):
        return await session.lexical_candidates(plan, weights, selector, now=now, limit=CANDIDATES_PER_LEG)


async def _confirm(
    session: ReadSession,
    dense: dict[UUID, float | None],
    lexical: list[LexicalMatch],
    weights: TermWeights,
    vector: Vector | None,
    selector: Selector,
    now: datetime,
) -> list[Candidate]:
    if not dense and not lexical:
        return []
    with stage("confirm"):
        return await session.confirm(dense, lexical, weights, vector, selector, now=now)


async def _by_meaning(
    services: Services,
    plan: RecallPlan,
    embedding: asyncio.Task[Vector | None],
    known_vector: Vector | None,
    selector: Selector,
    now: datetime,
) -> dict[UUID, float | None]:
    vector = known_vector if known_vector is not None else await embedding
    if vector is None:
        return {}
    with stage("dense"):
        # One more than needed: the memory that is its own nearest neighbour is no answer.
        limit = CANDIDATES_PER_LEG + (known_vector is not None)
        return await services.vectors.search(plan.space_id, plan.buckets, vector, selector, now=now, limit=limit)


def _weigh(plan: RecallPlan) -> TermWeights:
    """Inverse document frequencies as BM25 has them, and the rarest terms with at most 1,000 matches between them."""
    weights = []
    rarest: list[str] = []
    matches = 0
    for term, frequency in zip(plan.terms, plan.frequencies, strict=True):
        bounded = min(frequency, plan.documents)
        weights.append(log(1.0 + (plan.documents - bounded + 0.5) / (bounded + 0.5)))
        # Words that no counted memory has stay in: a snapshot may not know them yet.
        if not matches or matches + frequency <= MAX_MATCHES:
            rarest.append(term)
            matches += frequency
    average_length = max(1.0, plan.total_length / plan.documents) if plan.documents else 1.0
    return TermWeights(plan.terms, tuple(weights), tuple(rarest), average_length)


def _cut(candidates: Sequence[Candidate], mode: Mode, query: FindQuery) -> tuple[list[Ranked], int]:
    ranked = rank(candidates, mode=mode)
    threshold = query.min_similarity
    kept = ranked
    if threshold is not None and mode is not Mode.LEXICAL:
        kept = [entry for entry in ranked if entry.score.similarity >= threshold]
    return kept[: query.limit or DEFAULT_LIMIT], len(ranked) - len(kept)
