"""Find: recall by meaning and by words, ranked and explained."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log
from uuid import UUID

from lorebank_server.domain import limits
from lorebank_server.domain.errors import (
    EmbedderUnavailableError,
    FailedPreconditionError,
    InvalidArgumentError,
    VectorIndexUnavailableError,
)
from lorebank_server.domain.memory import Memory
from lorebank_server.domain.principal import Principal
from lorebank_server.domain.ranking import CANDIDATES_PER_LEG, Candidate, Mode, Ranked, Ranking, Score, rank
from lorebank_server.domain.selector import Selector
from lorebank_server.operations import writing
from lorebank_server.operations.selecting import resolve
from lorebank_server.operations.services import Services
from lorebank_server.ports.deadline import share
from lorebank_server.ports.embedder import Vector
from lorebank_server.ports.stages import note, stage
from lorebank_server.ports.storage import ReadSession, RecallPlan, TermWeights
from lorebank_server.ports.vector_index import Nearest

DEFAULT_LIMIT = 10
MAX_LIMIT = 100
MAX_MATCHES = 1000

DENSE_SHARE = 0.5
"""Part of the time left after the query is embedded that the vector index may take."""

HELD_S = 0.05
"""How long a session is held for a dense leg that is under way: what a healthy one takes, its model included."""

_NOT_SEARCHED = "vector index: unavailable, only memories that share words with the query were looked at"


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
    generation: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    expected = services.embedders.expected_in(principal.space_id)
    embedding = asyncio.create_task(_embed(services, query, expected, generation))
    try:
        result = await _recall(services, principal, query, selector, embedding, generation, now)
    finally:
        embedding.cancel()
    if not query.skip_usage:
        services.usage.note(principal.space_id, [hit.memory.uid for hit in result.hits], time=now)
    note(hits=len(result.hits), degraded=bool(result.degraded))
    return result


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


async def _embed(
    services: Services, query: FindQuery, expected: int, generation: "asyncio.Future[int]"
) -> Vector | None:
    """The query's vector: made before it is known which model the space is searched by, rarely to be made again."""
    if query.mode is Mode.LEXICAL or query.similar_to:
        return None
    vector = await _embed_with(services, query, expected)
    actual = await generation
    return vector if actual == expected else await _embed_with(services, query, actual)


async def _embed_with(services: Services, query: FindQuery, generation: int) -> Vector | None:
    try:
        with stage("embed"):
            async with asyncio.timeout(share(writing.EMBEDDING_SHARE)):
                return await services.embedders.of(generation).embed_query(query.query)
    except (EmbedderUnavailableError, TimeoutError):
        return None


async def _recall(
    services: Services,
    principal: Principal,
    query: FindQuery,
    selector: Selector,
    embedding: asyncio.Task[Vector | None],
    generation: "asyncio.Future[int]",
    now: datetime,
) -> FindResult:
    async with services.storage.reading(principal, now=now) as session:
        generation.set_result(services.embedders.met_in(session.space))
        mode = query.mode
        degraded: tuple[str, ...] = ()
        origin = await _origin(session, query)
        text = origin.draft.content if origin else query.query
        known_vector = await session.vector_of(origin.uid) if origin and mode is not Mode.LEXICAL else None
        with stage("plan"):
            plan = await session.plan_recall("" if mode is Mode.SEMANTIC else text, selector)
            note(terms=len(plan.terms), buckets=len(plan.buckets))
        weights = _weigh(plan)
        meaning = asyncio.create_task(_by_meaning(services, plan, embedding, known_vector, selector, now))
        try:
            candidates = await _by_words(session, plan, weights, selector, now)
            dense = await _leaving_to_others(session, meaning)
            vector = known_vector if known_vector is not None else await embedding
        finally:
            meaning.cancel()
        searched = dense is not None and dense.complete
        if not searched and mode is Mode.SEMANTIC:
            plan = await session.plan_recall(text, selector)
            weights = _weigh(plan)
            candidates = await _by_words(session, plan, weights, selector, now)
        if not searched and mode is not Mode.LEXICAL:
            degraded = (_NOT_SEARCHED if vector is not None else _not_embedded(origin, query.mode),)
        elif dense is not None:
            degraded = dense.degraded
        if vector is None:
            mode = Mode.LEXICAL
        else:
            similarities = dense.similarities if dense is not None else {}
            candidates = await _confirm(session, similarities, candidates, weights, vector, selector, now)
        if origin is not None:
            candidates = [candidate for candidate in candidates if candidate.uid != origin.uid]
        with stage("rank", candidates=len(candidates)):
            ranking = rank(candidates, mode=mode)
            kept = _above_threshold(ranking, mode, query)
            best = kept[: query.limit or DEFAULT_LIMIT]
            note(kept=len(best), below_threshold=len(ranking.entries) - len(kept))
        with stage("hydrate", memories=len(best)):
            hydrated = await session.memories_by_uid([entry.candidate.uid for entry in best])
    hits = tuple(
        _hit(entry, hydrated[entry.candidate.uid], ranking) for entry in best if entry.candidate.uid in hydrated
    )
    return FindResult(hits, len(ranking.entries) - len(kept), degraded)


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
) -> list[Candidate]:
    if not weights.terms:
        return []
    with stage("lexical", terms=len(weights.rarest)):
        found = await session.lexical_candidates(plan, weights, selector, now=now, limit=CANDIDATES_PER_LEG)
        note(candidates=len(found))
        return found


async def _confirm(
    session: ReadSession,
    dense: Mapping[UUID, float | None],
    lexical: Sequence[Candidate],
    weights: TermWeights,
    vector: Vector,
    selector: Selector,
    now: datetime,
) -> list[Candidate]:
    with stage("confirm", candidates=len(dense) + len(lexical)):
        confirmed = await session.confirm(dense, lexical, weights, vector, selector, now=now)
        note(confirmed=len(confirmed))
        return confirmed


async def _by_meaning(
    services: Services,
    plan: RecallPlan,
    embedding: asyncio.Task[Vector | None],
    known_vector: Vector | None,
    selector: Selector,
    now: datetime,
) -> Nearest | None:
    """The dense leg; None without a vector, or when the index is away."""
    vector = known_vector if known_vector is not None else await embedding
    if vector is None:
        return None
    # One more than needed: the memory that is its own nearest neighbour is no answer.
    limit = CANDIDATES_PER_LEG + (known_vector is not None)
    try:
        with stage("dense"):
            async with asyncio.timeout(share(DENSE_SHARE)):
                nearest = await services.vectors.search(plan, vector, selector, now=now, limit=limit)
            note(candidates=len(nearest.similarities), degraded=bool(nearest.degraded))
            return nearest
    except (VectorIndexUnavailableError, TimeoutError):
        return None


async def _leaving_to_others(session: ReadSession, meaning: asyncio.Task[Nearest | None]) -> Nearest | None:
    """What the dense leg finds; the session serves others while that takes longer than it usually does."""
    await asyncio.wait((meaning,), timeout=HELD_S)
    if not meaning.done():
        async with session.resting():
            await asyncio.wait((meaning,))
    return await meaning


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


def _above_threshold(ranking: Ranking, mode: Mode, query: FindQuery) -> Sequence[Ranked]:
    threshold = query.min_similarity
    if threshold is None or mode is Mode.LEXICAL:
        return ranking.entries
    return [entry for entry in ranking.entries if (entry.candidate.similarity or 0.0) >= threshold]


def _hit(entry: Ranked, memory: Memory, ranking: Ranking) -> Hit:
    score = Score(
        similarity=entry.candidate.similarity or 0.0,
        lexical=entry.candidate.lexical,
        max_similarity=ranking.max_similarity,
        max_lexical=ranking.max_lexical,
        fused=entry.fused,
        quality=memory.quality,
    )
    return Hit(memory, score, tuple(sorted(entry.candidate.matched)))
