"""The simulation of slow clients: without any, steps of all clients are rounds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.federation.stragglers import (
    CLIENTS,
    DEADLINE,
    IID,
    SLOW,
    SLOWER,
    TURNED,
    Clients,
    Way,
    accuracies,
    clients_of,
)
from studies.federations import Federation
from studies.settings import Setting


def quick_clients() -> Clients:
    """Clients of one group, of whom none is slow."""
    federation = Federation.planted(Setting("digits", "mlp", IID, CLIENTS))
    return Clients(federation, np.zeros(CLIENTS, np.int64), np.zeros(CLIENTS, bool))


def seen(clients: Clients, way: Way, end: int = 4) -> np.ndarray:
    clients.begin()
    return np.array(list(accuracies(clients, way, end)))


def test_steps_of_all_clients_are_rounds() -> None:
    """The same accuracies at each time, up to guesses that rounding decides."""
    clients = quick_clients()
    found = seen(clients, Way("steps", size=CLIENTS))
    assert found == pytest.approx(seen(clients, Way("rounds")), abs=0.07)
    assert found[-1].mean() > found[0].mean()


def test_a_run_can_be_repeated() -> None:
    """To the bit, since all that is random has a seed."""
    clients = quick_clients()
    first, again = (seen(clients, Way("steps", size=3)) for _ in range(2))
    assert np.array_equal(first, again)


def test_slow_clients_hold_up_rounds_that_wait() -> None:
    """No model moves before the slow ones are there; with a deadline, or by steps, they do."""
    clients = clients_of(IID, 0)
    assert SLOW == clients.slow.sum()
    waiting = seen(clients, Way("rounds"), 5)
    assert np.array_equal(waiting[0], waiting[-1])
    for way in (Way("closed", deadline=DEADLINE), Way("steps", size=10)):
        moved = seen(clients, way, 5)
        assert not np.array_equal(moved[0], moved[-1])
    assert SLOWER > 5 * DEADLINE


def test_slow_clients_of_turned_images_are_of_one_group() -> None:
    """So that what becomes of their group can be seen."""
    clients = clients_of(TURNED, 1)
    assert 1 == np.unique(clients.groups[clients.slow]).size
