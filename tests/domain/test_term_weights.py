"""Which words of a query candidates are drawn from."""

from lorebank_server.operations.find import MAX_MATCHES, _weigh
from lorebank_server.ports.storage import RecallPlan


def plan(**frequencies: int) -> RecallPlan:
    rarest_first = sorted((count, term) for term, count in frequencies.items())
    return RecallPlan(
        space_id=1,
        generation=1,
        buckets=(1,),
        terms=tuple(term for _, term in rarest_first),
        frequencies=tuple(count for count, _ in rarest_first),
        documents=10_000,
        total_length=100_000,
    )


def test_rare_words_are_taken_until_their_matches_reach_the_bound():
    assert ("b", "c") == _weigh(plan(a=MAX_MATCHES, b=1, c=MAX_MATCHES - 1)).rarest


def test_a_word_that_nobody_wrote_does_not_keep_a_common_one_out():
    assert ("absent", "common") == _weigh(plan(absent=0, common=MAX_MATCHES + 1)).rarest


def test_a_rarer_word_weighs_more():
    weights = _weigh(plan(common=5_000, rare=3)).weights
    assert weights[0] > weights[1] > 0
