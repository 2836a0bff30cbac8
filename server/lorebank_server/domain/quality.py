"""What a memory has earned: pure functions of stored counts and dates.

The formulas are named and versioned. ``bayes-v2`` is the default: a Beta posterior over votes and settled
outcomes, multiplied by a retention that fades but never buries. ``none`` switches quality off: every memory is
worth the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log2

POLICIES = ("bayes-v2", "none")
DEFAULT_POLICY = "bayes-v2"
DEFAULT_HALF_LIFE_DAYS = 90.0
DEFAULT_STALE_THRESHOLD = 0.25

_PRIOR_A = 1.4
_PRIOR_B = 0.6
_UPVOTE = 0.3
_DOWNVOTE = 0.3
_SUCCESS = 1.0
_FAILURE = 2.0
_WEIGHT_CAP = 2.0
_RETENTION_FLOOR = 0.25
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Tally:
    """What one principal said of one memory."""

    upvotes: int = 0
    downvotes: int = 0
    citations: int = 0
    successes: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """The stored part of quality; everything else follows from it and the clock.

    Attributes:
        reputation: 0 to 1.
        half_life_days: None when the memory does not decay.
        reference_time: Start of the retention clock.
    """

    policy: str
    reputation: float
    half_life_days: float | None
    reference_time: datetime
    upvotes: int = 0
    downvotes: int = 0
    citations: int = 0
    successes: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality at one moment.

    Attributes:
        retention: 0 to 1; 1 when pinned or without half-life.
        strength: 0 to 1; what ranking, staleness and pruning use.
        age_days: Days since the reference time, never negative.
    """

    retention: float
    reputation: float
    strength: float
    stale: bool
    upvotes: int
    downvotes: int
    citations: int
    successes: int
    failures: int
    policy: str
    age_days: float


def reputation(policy: str, tallies: Iterable[Tally]) -> float:
    """Posterior mean of usefulness under ``policy``, 0 to 1; 0.7 for no tallies, always 1 under ``none``.

    No principal weighs more than two votes: its counts are scaled by ``min(1, 2 / n)``.
    """
    if policy == "none":
        return 1.0
    a, b = _PRIOR_A, _PRIOR_B
    for tally in tallies:
        votes = tally.upvotes + tally.downvotes + tally.successes + tally.failures
        if votes == 0:
            continue
        weight = min(1.0, _WEIGHT_CAP / votes)
        a += weight * (_UPVOTE * tally.upvotes + _SUCCESS * tally.successes)
        b += weight * (_DOWNVOTE * tally.downvotes + _FAILURE * tally.failures)
    return a / (a + b)


def assess(standing: Standing, *, now: datetime, stale_threshold: float) -> Quality:
    """Quality of a memory at ``now``."""
    age_days = max(0.0, (now - standing.reference_time) / _DAY)
    decays = standing.policy != "none" and standing.half_life_days is not None
    retention = 0.5 ** (age_days / standing.half_life_days) if decays and standing.half_life_days else 1.0
    strength = standing.reputation * (_RETENTION_FLOOR + (1.0 - _RETENTION_FLOOR) * retention)
    return Quality(
        retention=retention,
        reputation=standing.reputation,
        strength=strength,
        stale=standing.policy != "none" and strength < stale_threshold,
        upvotes=standing.upvotes,
        downvotes=standing.downvotes,
        citations=standing.citations,
        successes=standing.successes,
        failures=standing.failures,
        policy=standing.policy,
        age_days=age_days,
    )


def crossing_time(standing: Standing, threshold: float) -> datetime | None:
    """The moment strength falls below ``threshold``; None when it never does.

    Strength only falls between writes, so the moment is known in advance and can be indexed. A memory that is
    already below gets its reference time.
    """
    if standing.policy == "none" or threshold <= 0.0:
        return None
    share = (threshold / standing.reputation - _RETENTION_FLOOR) / (1.0 - _RETENTION_FLOOR)
    if share > 1.0:
        return standing.reference_time
    if share <= 0.0 or standing.half_life_days is None:
        return None
    return standing.reference_time + standing.half_life_days * log2(1.0 / share) * _DAY


def multiplier(policy: str, strength: float) -> float:
    """The factor by which strength moves relevance: 0.25 to 1.75, and 1 under ``none``."""
    return 1.0 if policy == "none" else 0.25 + 1.5 * strength
