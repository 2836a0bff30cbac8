"""Fusion and order of candidates."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorebank_server.domain.quality import multiplier
from lorebank_server.domain.ranking import Candidate, Mode, rank


def candidate(name, similarity, lexical, strength=0.5):
    return Candidate(UUID(int=abs(hash(name)) % 2**100), name, similarity, lexical, multiplier("bayes-v2", strength))


def order(candidates, mode=Mode.HYBRID):
    return [(entry.candidate.id, round(entry.total, 9)) for entry in rank(candidates, mode=mode).entries]


def test_each_leg_is_divided_by_its_maximum_and_weighed_4_to_6():
    found = order([candidate("a", 0.8, 1.0), candidate("b", 0.4, 4.0), candidate("c", 0.2, 0.0)])
    # a: 0.4 * 1 + 0.6 * 0.25 = 0.55; b: 0.4 * 0.5 + 0.6 = 0.8; c: 0.4 * 0.25 = 0.1; quality 0.25 + 1.5 * 0.5 = 1
    assert [("b", 0.8), ("a", 0.55), ("c", 0.1)] == found


def test_one_leg_alone_gets_all_the_weight():
    both = [candidate("a", 0.8, 1.0), candidate("b", 0.4, 4.0)]
    assert [("a", 1.0), ("b", 0.5)] == order(both, Mode.SEMANTIC)
    assert [("b", 1.0), ("a", 0.25)] == order(both, Mode.LEXICAL)
    assert order(both) == order(both, Mode.UNSPECIFIED)


def test_what_no_leg_supports_is_no_hit():
    nothing = [candidate("a", None, 0.0), candidate("b", -0.5, 0.0), candidate("c", 0.0, 0.0)]
    assert [] == order(nothing)
    assert [] == order([])
    assert [("a", 0.6)] == order([*nothing[1:], candidate("a", None, 3.0)])


def test_a_negative_similarity_is_told_and_counts_as_zero():
    ranking = rank([candidate("a", -0.3, 2.0)], mode=Mode.HYBRID)
    (entry,) = ranking.entries
    assert (-0.3, 0.0, 0.6) == (entry.candidate.similarity, ranking.max_similarity, entry.fused)


def test_strength_moves_rank():
    assert ["b", "a"] == [name for name, _ in order([candidate("a", 0.5, 1.0, 0.2), candidate("b", 0.5, 1.0, 0.9)])]


CANDIDATES = st.lists(
    st.builds(
        candidate,
        st.text("abcdefgh", min_size=8, max_size=8),
        st.none() | st.sampled_from([-1.0, -0.2, 0.0, 0.3, 0.3, 0.9, 1.0]),
        st.sampled_from([0.0, 0.0, 1.5, 1.5, 7.25]),
        st.sampled_from([0.0, 0.175, 0.7, 1.0]),
    ),
    max_size=30,
    unique_by=lambda entry: entry.id,
)


@given(candidates=CANDIDATES, mode=st.sampled_from(Mode), seed=st.randoms())
def test_order_is_total_ties_go_by_id_and_input_order_does_not_matter(candidates, mode, seed):
    ranking = rank(candidates, mode=mode)
    shuffled = list(candidates)
    seed.shuffle(shuffled)
    assert ranking == rank(shuffled, mode=mode)
    keys = [(-entry.total, entry.candidate.id) for entry in ranking.entries]
    assert sorted(keys) == keys
    assert all(0.0 < entry.fused <= 1.0 + 1e-12 for entry in ranking.entries)


@given(candidates=CANDIDATES, mode=st.sampled_from(Mode))
def test_the_best_of_each_leg_has_that_leg_in_full(candidates, mode):
    ranking = rank(candidates, mode=mode)
    for entry in ranking.entries:
        found = entry.candidate
        parts = {
            Mode.SEMANTIC: (1.0, 0.0),
            Mode.LEXICAL: (0.0, 1.0),
        }.get(mode, (0.4, 0.6))
        dense = max(0.0, found.similarity or 0.0) / ranking.max_similarity if ranking.max_similarity else 0.0
        lexical = found.lexical / ranking.max_lexical if ranking.max_lexical else 0.0
        assert parts[0] * dense + parts[1] * lexical == pytest.approx(entry.fused, abs=1e-12)
        assert entry.fused * found.multiplier == pytest.approx(entry.total, abs=1e-12)
