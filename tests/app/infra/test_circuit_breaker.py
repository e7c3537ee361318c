"""The circuit breaker, on a clock of the test's own."""

from __future__ import annotations

from app.infra.storage.circuit_breaker import CircuitBreaker


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_new_breaker_lets_everyone_through() -> None:
    """Nothing has failed yet."""
    assert CircuitBreaker(2.0, clock=Clock()).allows()


def test_it_opens_for_the_pause_after_a_failure() -> None:
    """Until the pause is over no call is allowed."""
    clock = Clock()
    breaker = CircuitBreaker(2.0, clock=clock)
    breaker.failed()
    clock.now += 1.9
    assert not breaker.allows()
    clock.now += 0.2
    assert breaker.allows()


def test_one_alone_tries_again() -> None:
    """After the pause one call is let through, and the others wait for what it finds."""
    clock = Clock()
    breaker = CircuitBreaker(2.0, clock=clock)
    breaker.failed()
    clock.now += 3
    assert [True, False, False] == [breaker.allows() for _ in range(3)]


def test_a_success_closes_it() -> None:
    """Once the server answered everyone is let through."""
    clock = Clock()
    breaker = CircuitBreaker(2.0, clock=clock)
    breaker.failed()
    clock.now += 3
    assert breaker.allows()
    breaker.succeeded()
    assert [True, True] == [breaker.allows() for _ in range(2)]


def test_a_failed_try_opens_it_anew() -> None:
    """A server that is still down gets another pause."""
    clock = Clock()
    breaker = CircuitBreaker(2.0, clock=clock)
    breaker.failed()
    clock.now += 3
    assert breaker.allows()
    breaker.failed()
    clock.now += 1
    assert not breaker.allows()


def test_a_try_that_never_ends_does_not_close_it_forever() -> None:
    """If who tried says nothing, another one may try after the pause."""
    clock = Clock()
    breaker = CircuitBreaker(2.0, clock=clock)
    breaker.failed()
    clock.now += 3
    assert breaker.allows()
    clock.now += 3
    assert breaker.allows()
