"""The circuit breaker by itself, on a clock of its own."""

import asyncio

import pytest

from lorebank_server.circuit_breaker import CircuitBreaker, CircuitOpenError


class AwayError(Exception):
    """The dependency is away."""


class RefusedError(Exception):
    """The dependency answered no."""


class Ticks:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def ticks():
    return Ticks()


@pytest.fixture
def breaker(ticks):
    return CircuitBreaker(
        "test",
        is_failure=lambda error: isinstance(error, AwayError),
        max_failures=3,
        open_s=5.0,
        slow_s=0.5,
        clock=ticks,
    )


def call(breaker, error=None):
    with breaker.attempt():
        if error is not None:
            raise error


def fail(breaker, times=1):
    for _ in range(times):
        with pytest.raises(AwayError):
            call(breaker, AwayError())


def abandon(breaker, ticks, after):
    def give_up():
        with breaker.attempt():
            ticks.now += after
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        give_up()


def refuses(breaker):
    try:
        call(breaker)
    except CircuitOpenError:
        return True
    return False


def test_it_opens_after_failures_in_a_row(breaker):
    fail(breaker, times=2)
    assert "closed" == breaker.state
    fail(breaker)
    assert "open" == breaker.state
    assert refuses(breaker)


def test_an_answer_in_between_starts_the_count_anew(breaker):
    fail(breaker, times=2)
    call(breaker)
    fail(breaker, times=2)
    assert "closed" == breaker.state


def test_a_refusal_is_an_answer(breaker):
    fail(breaker, times=2)
    for _ in range(5):
        with pytest.raises(RefusedError):
            call(breaker, RefusedError())
    fail(breaker, times=2)
    assert "closed" == breaker.state


def test_one_probe_at_a_time_decides(breaker, ticks):
    fail(breaker, times=3)
    ticks.now += 5.0
    assert "half-open" == breaker.state
    with breaker.attempt():
        assert refuses(breaker)
    assert "closed" == breaker.state
    assert not refuses(breaker)


def test_a_failed_probe_opens_it_for_as_long_again(breaker, ticks):
    fail(breaker, times=3)
    ticks.now += 5.0
    fail(breaker)
    ticks.now += 4.9
    assert refuses(breaker)
    ticks.now += 0.1
    assert not refuses(breaker)


def test_an_abandoned_call_counts_only_when_it_was_slow(breaker, ticks):
    for _ in range(10):
        abandon(breaker, ticks, after=0.4)
    assert "closed" == breaker.state
    for _ in range(3):
        abandon(breaker, ticks, after=0.5)
    assert "open" == breaker.state


def test_a_probe_abandoned_early_leaves_the_decision_to_the_next(breaker, ticks):
    fail(breaker, times=3)
    ticks.now += 5.0
    abandon(breaker, ticks, after=0.1)
    assert "half-open" == breaker.state
    assert not refuses(breaker)
    assert "closed" == breaker.state


def test_calls_from_before_it_opened_do_not_keep_it_open(breaker, ticks):
    def begun_before():
        with breaker.attempt():
            fail(breaker, times=3)
            ticks.now += 4.0
            raise AwayError

    with pytest.raises(AwayError):
        begun_before()
    ticks.now += 1.0
    assert not refuses(breaker)


def test_a_late_answer_closes_it(breaker):
    with breaker.attempt():
        fail(breaker, times=3)
        assert "open" == breaker.state
    assert "closed" == breaker.state
