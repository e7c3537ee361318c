"""Receivers are attacked with what reaches them, no more and no less, and the front is a front."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.eris.data import digits
from benchmarks.eris.leakage import Leak, Size, front, train
from benchmarks.eris.receivers import SUM, Seen
from benchmarks.eris.trainings import GLOBAL, TRAININGS, Training
from modelkin.torch.privacy.metrics import auc

N, M = 20, 640
EACH = [pytest.param(each, id=next(iter(each.views))[1]) for each in TRAININGS]
BY_NAME = {name: each for each in TRAININGS for _, name in each.views}


def updates(number: int) -> Tensor:
    """Of two rounds, shorter than the norm at which noise would clip them."""
    rng = np.random.default_rng(number)
    return torch.from_numpy(0.01 * rng.standard_normal((N, M)).astype(np.float32))


def seen(training: Training, last: Tensor) -> dict[tuple[str, int | None], Seen]:
    """The views of the second of two rounds, by name and sender."""
    exchange = training.start(M, N, 0)
    models = torch.zeros(N, M)
    for number, each in enumerate((updates(0), last)):
        models = exchange(models, each, number)
    return {(view.view, view.sender): view for view in exchange.seen}


@pytest.mark.parametrize("training", EACH)
def test_a_view_has_nothing_that_was_not_sent(training: Training) -> None:
    """Doubling what a client did on all other coordinates changes no value of it, nor any place."""
    for key, view in seen(training, updates(1)).items():
        if view.sender not in (0, 7):
            continue
        other = torch.ones(M, dtype=torch.bool)
        other[view.at] = False
        changed = updates(1)
        changed[view.sender, other] *= 2
        again = seen(training, changed)[key]
        assert torch.equal(view.at, again.at)
        assert torch.equal(view.values, again.values)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("FedAvg", 1),
        ("ERIS, A = 10", 1 / 10),
        ("ERIS, A = 50", 1 / 50),
        ("ERIS, A = 10, c = 16, one mask", 1 / 160),
        ("ERIS, A = 20, c = 16, own masks, shifts", 1 / 320),
        ("SoteriaFL, c = 20, sigma = 0", 1 / 20),
        ("PriPrune, 10%", 0.9),
    ],
)
def test_a_view_has_the_update_where_it_was_sent(name: str, share: float) -> None:
    """Factors and shifts are known, so the values are those of the update; of so many."""
    training = BY_NAME[name]
    views = {view for each, of in training.views.items() if each[1] == name for view in of} - {SUM}
    mine = [each for each in seen(training, updates(1)).values() if each.view in views]
    assert N == len(mine)
    for view in mine:
        assert view.values.numpy() == pytest.approx(
            updates(1)[view.sender, view.at].numpy(), abs=1e-7
        )
        assert abs(len(view.at) - share * M) <= 1


@pytest.mark.parametrize("name", [each for each in BY_NAME if "sums" in each])
def test_a_sum_is_of_all(name: str) -> None:
    """What one client adds and another takes away is not to be seen."""
    moved, other = updates(1), updates(1)
    moved[3] += 0.01
    moved[4] -= 0.01
    one, again = (seen(BY_NAME[name], each)[SUM, None] for each in (other, moved))
    assert torch.equal(one.at, again.at)
    assert one.values.numpy() == pytest.approx(again.values.numpy(), abs=1e-6)


def test_peers_get_parts_of_a_client() -> None:
    """Ako's get a fifth of all steps so far, Shatter's chunks of a model, Q-DPSGD-1's all."""
    ako = seen(BY_NAME["Ako, 5 parts"], updates(1))["peer", 3]
    assert M // 5 == len(ako.at)
    both = updates(0) + updates(1)
    assert ako.values.numpy() == pytest.approx(both[3, ako.at].numpy())
    shatter = seen(BY_NAME["Shatter, 16 chunks, 4 neighbours"], updates(1))
    sizes = [len(view.at) for view in shatter.values()]
    assert all(size % (M // 16) == 0 for size in sizes)
    assert 0 < max(sizes) < M
    quantized = seen(BY_NAME["Q-DPSGD-1, 7 levels, no noise"], updates(1))
    assert {M} == {len(view.at) for view in quantized.values()}


def test_least_squares_find_who_was_in() -> None:
    """One round of FedAvg tells it of few samples almost surely, and sums of all tell it too."""
    size = Size(clients=4, known=2, canaries=8)
    _, scores, clients = train(digits(), TRAININGS[0].start, 1, 0, size)
    truth = np.concatenate([client.truth for client in clients])
    areas = {key: auc(rows.ravel(), truth) for key, rows in scores.items()}
    assert areas["A = 1", "least squares"] > 0.9
    assert areas[SUM, "least squares"] > 0.8


def test_the_front_is_what_no_other_beats() -> None:
    """A method that is as accurate as another and shows more is not on it; models are no method."""
    best, worse, private = (
        Leak("f", name, accuracy, 0.0, area, "loss", area)
        for name, accuracy, area in (("a", 0.9, 0.6), ("b", 0.9, 0.7), ("c", 0.5, 0.5))
    )
    models = Leak("f", GLOBAL, 0.9, 0.0, 0.55, "loss", 0.55)
    assert {"a", "c"} == front([best, worse, private, models], lambda leak: leak.area)
