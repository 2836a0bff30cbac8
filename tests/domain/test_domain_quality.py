"""bayes-v2 by hand, and its laws."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorebank_server.domain.quality import Standing, Tally, assess, crossing_time, multiplier, reputation

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


def standing(worth=0.7, half_life=90.0, policy="bayes-v2"):
    return Standing(policy=policy, reputation=worth, half_life_days=half_life, reference_time=NOW)


@pytest.mark.parametrize(
    ("tallies", "expected"),
    [
        ([], 0.7),  # 1.4 / (1.4 + 0.6)
        ([Tally(citations=9)], 0.7),  # an open citation says nothing
        ([Tally(upvotes=1)], 1.7 / 2.3),  # a = 1.4 + 0.3
        ([Tally(downvotes=1)], 1.4 / 2.3),  # b = 0.6 + 0.3
        ([Tally(upvotes=2)], 2.0 / 2.6),  # the second vote still counts in full
        ([Tally(upvotes=20)], 2.0 / 2.6),  # 20 votes weigh as two: 2/20 * 0.3 * 20 = 0.6
        ([Tally(downvotes=20)], 1.4 / 2.6),
        ([Tally(upvotes=1)] * 10, 4.4 / 5.0),  # ten people: a = 1.4 + 10 * 0.3
        ([Tally(successes=1)], 2.4 / 3.0),  # a = 1.4 + 1
        ([Tally(failures=1)], 1.4 / 4.0),  # b = 0.6 + 2
        ([Tally(successes=3, failures=1)], 2.9 / 4.5),  # weight 2/4: a = 1.4 + 1.5, b = 0.6 + 1
        ([Tally(upvotes=1, downvotes=1)], 1.7 / 2.6),
        ([Tally(upvotes=3, successes=1)], 2.35 / 2.95),  # weight 2/4: a = 1.4 + 0.5 * (0.9 + 1)
        ([Tally(upvotes=1), Tally(downvotes=1), Tally(citations=3)], 1.7 / 2.6),
    ],
)
def test_reputation_is_the_posterior_mean_with_no_voter_above_two_votes(tallies, expected):
    assert expected == pytest.approx(reputation("bayes-v2", tallies), abs=1e-12)
    assert 1.0 == reputation("none", tallies)


@pytest.mark.parametrize(
    ("days", "retention", "strength", "stale"),
    [
        (-5, 1.0, 0.7, False),  # a clock that ran backwards does not make it younger than new
        (0, 1.0, 0.7, False),
        (90, 0.5, 0.7 * 0.625, False),  # 0.25 + 0.75 * 0.5
        (180, 0.25, 0.7 * 0.4375, False),
        (270, 0.125, 0.7 * 0.34375, True),  # 0.240625 is below 0.25
        (90_000, 0.0, 0.7 * 0.25, True),  # a thousand half-lives: the floor remains
    ],
)
def test_strength_fades_to_a_quarter_and_no_further(days, retention, strength, stale):
    quality = assess(standing(), now=NOW + timedelta(days=days), stale_threshold=0.25)
    assert (pytest.approx(retention), pytest.approx(strength), stale) == (
        quality.retention,
        quality.strength,
        quality.stale,
    )
    assert max(0, days) == quality.age_days


@pytest.mark.parametrize(("policy", "half_life"), [("none", 90.0), ("bayes-v2", None), ("none", None)])
def test_without_half_life_or_policy_nothing_fades(policy, half_life):
    quality = assess(standing(0.2, half_life, policy), now=NOW + timedelta(days=9999), stale_threshold=0.25)
    assert (1.0, 0.2, policy == "bayes-v2") == (quality.retention, quality.strength, quality.stale)


def test_counts_are_carried_over():
    counted = Standing("bayes-v2", 0.7, None, NOW, upvotes=1, downvotes=2, citations=3, successes=4, failures=5)
    quality = assess(counted, now=NOW, stale_threshold=0.25)
    assert (1, 2, 3, 4, 5) == (
        quality.upvotes,
        quality.downvotes,
        quality.citations,
        quality.successes,
        quality.failures,
    )


@pytest.mark.parametrize(
    ("strength", "policy", "expected"), [(0.0, "bayes-v2", 0.25), (1.0, "bayes-v2", 1.75), (0.1, "none", 1.0)]
)
def test_quality_moves_relevance_between_a_quarter_and_seven_quarters(strength, policy, expected):
    quality = assess(standing(strength, None, policy), now=NOW, stale_threshold=0.25)
    assert expected == multiplier(quality.policy, quality.strength)


@pytest.mark.parametrize(
    ("worth", "half_life", "threshold", "days"),
    [
        (0.7, 90.0, 0.4375, 90),  # half of it is left after one half-life
        (0.8, 30.0, 0.35, 60),  # 0.8 * (0.25 + 0.75 * 0.25)
        (0.2, 90.0, 0.25, 0),  # below from the beginning
        (0.7, 90.0, 0.175, None),  # the floor itself is never passed
        (0.7, None, 0.25, None),
        (0.7, 90.0, 0.0, None),
    ],
)
def test_the_moment_of_going_stale_is_known_in_advance(worth, half_life, threshold, days):
    moment = crossing_time(standing(worth, half_life), threshold)
    if days is None:
        assert moment is None
    else:
        assert moment is not None
        assert days == pytest.approx((moment - NOW) / timedelta(days=1))


def test_without_policy_nothing_goes_stale():
    assert crossing_time(standing(0.0001, 1.0, "none"), 1.0) is None


@given(
    worth=st.floats(0.01, 1.0),
    half_life=st.none() | st.floats(0.001, 36_500.0),
    threshold=st.floats(0.0, 1.0),
)
def test_a_memory_is_fresh_before_the_crossing_and_stale_after_it(worth, half_life, threshold):
    subject = standing(worth, half_life)
    moment = crossing_time(subject, threshold)
    if moment is None:
        far = assess(subject, now=NOW + timedelta(days=365_000), stale_threshold=threshold)
        assert far.strength >= threshold - 1e-12
        return
    margin = max(timedelta(milliseconds=1), (half_life or 1.0) * timedelta(days=1) / 10**6)
    if moment > NOW + margin:
        before = assess(subject, now=moment - margin, stale_threshold=threshold)
        assert before.strength >= threshold - 1e-12
    after = assess(subject, now=moment + margin, stale_threshold=threshold)
    assert after.strength <= threshold + 1e-12


@given(
    votes=st.lists(st.builds(Tally, *[st.integers(0, 1000)] * 5), max_size=20),
    more=st.integers(1, 5),
)
def test_reputation_stays_within_bounds_and_rises_with_a_new_upvoter(votes, more):
    before = reputation("bayes-v2", votes)
    assert 0.0 < before < 1.0
    assert before < reputation("bayes-v2", [*votes, Tally(upvotes=more)])
    assert before > reputation("bayes-v2", [*votes, Tally(downvotes=more)])
    assert before == pytest.approx(reputation("bayes-v2", votes[::-1]))
