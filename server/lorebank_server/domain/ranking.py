"""Fusion and ranking of recall candidates; every number in a hit can be recomputed from its parts.

``fused = 0.4 * max(0, cosine) / max cosine + 0.6 * bm25 / max bm25`` over the confirmed candidates. Anchoring at
zero, instead of min-max scaling, keeps near-ties near and a single hit defined; a maximum of zero gives zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from lorebank_server.domain.quality import Quality, multiplier

DENSE_WEIGHT = 0.4
LEXICAL_WEIGHT = 0.6
CANDIDATES_PER_LEG = 100


class Mode(IntEnum):
    """Which legs of recall take part."""

    UNSPECIFIED = 0
    HYBRID = 1
    SEMANTIC = 2
    LEXICAL = 3


class Candidate(NamedTuple):
    """A confirmed candidate with both exact scores.

    Attributes:
        similarity: Cosine of query and memory, -1 to 1; None when either has no vector.
        lexical: BM25 score, 0 or more.
        multiplier: The factor by which its quality moves relevance.
        matched: Lexemes of the query that the memory contains, in any order.
    """

    uid: UUID
    id: str
    similarity: float | None
    lexical: float
    multiplier: float
    matched: Sequence[str] = ()


class Ranked(NamedTuple):
    """A candidate in its place, with its relevance and that times its multiplier."""

    candidate: Candidate
    fused: float
    total: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates that a leg supports, best first.

    Attributes:
        max_similarity: The greatest cosine among them, at least 0.
        max_lexical: The greatest BM25 score among them.
    """

    entries: Sequence[Ranked]
    max_similarity: float
    max_lexical: float


@dataclass(frozen=True, slots=True)
class Score:
    """The parts of one hit's score."""

    similarity: float
    lexical: float
    max_similarity: float
    max_lexical: float
    fused: float
    quality: Quality
    applicability: float = 1.0

    @property
    def total(self) -> float:
        """``fused * multiplier * applicability``."""
        return self.fused * multiplier(self.quality.policy, self.quality.strength) * self.applicability


def rank(candidates: Sequence[Candidate], *, mode: Mode) -> Ranking:
    """Order candidates by score, highest first, ties by id.

    The first k of a longer answer are the answer of length k. SEMANTIC and LEXICAL give one leg all the weight.
    A candidate that no leg supports (a fused score of zero) is no hit.
    """
    dense_weight, lexical_weight = {
        Mode.SEMANTIC: (1.0, 0.0),
        Mode.LEXICAL: (0.0, 1.0),
    }.get(mode, (DENSE_WEIGHT, LEXICAL_WEIGHT))
    max_cosine = max((candidate.similarity or 0.0 for candidate in candidates), default=0.0)
    max_lexical = max((candidate.lexical for candidate in candidates), default=0.0)
    per_cosine = dense_weight / max_cosine if max_cosine > 0.0 else 0.0
    per_lexical = lexical_weight / max_lexical if max_lexical > 0.0 else 0.0
    entries = []
    for candidate in candidates:
        fused = per_cosine * max(0.0, candidate.similarity or 0.0) + per_lexical * candidate.lexical
        if fused > 0.0:
            entries.append(Ranked(candidate, fused, fused * candidate.multiplier))
    entries.sort(key=lambda entry: (-entry.total, entry.candidate.id))
    return Ranking(entries, max(0.0, max_cosine), max_lexical)
