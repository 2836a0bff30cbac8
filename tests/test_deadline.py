"""Shares of the caller's time."""

import pytest

from lorebank_server.ports.deadline import answering_within, share


def test_without_a_deadline_only_the_own_bound_counts():
    assert (None, 3.0) == (share(0.5), share(0.5, most_s=3.0))
    with answering_within(None):
        assert (None, 3.0) == (share(0.5), share(0.5, most_s=3.0))


def test_it_is_a_part_of_what_is_left():
    with answering_within(100.0):
        assert 49.0 < share(0.5) <= 50.0
        assert 24.0 < share(0.25, most_s=60.0) <= 25.0
        assert 10.0 == share(0.5, most_s=10.0)
    assert share(0.5) is None


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_nothing_is_left_of_a_deadline_that_passed(seconds):
    with answering_within(seconds):
        assert 0.0 == share(0.5, most_s=2.0)
