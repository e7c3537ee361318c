"""Receivers are attacked with what reaches them, no more and no less, and the front is a front."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.eris.baselines import DPSRM, SDMDSGD
from benchmarks.eris.data import digits
from benchmarks.eris.leakage.attack import RIDGES, fits
from benchmarks.eris.leakage.leaks import Leak, Setting, area, front, train
from benchmarks.eris.leakage.receivers import SUM, OfDPSRM, Seen
from benchmarks.eris.leakage.trainings import GLOBAL, TRAININGS, Training
from benchmarks.eris.membership import View, areas, dealt
from benchmarks.eris.networks import Flat, mlp
from modelkin.torch.privacy.membership import alignment, least_squares
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


def test_a_peer_has_the_step_where_it_was_sent() -> None:
    """SDM-DSGD's peers know what a model was drawn to, and so have a fifth of each step."""
    views = seen(BY_NAME["SDM-DSGD, c = 5, sigma = 0"], updates(1))
    for (_, sender), view in views.items():
        step = updates(1)[sender, view.at].numpy()
        assert view.values.numpy() == pytest.approx(step, abs=1e-7)
        assert abs(len(view.at) - M / 5) < 60


def test_sparse_steps_are_right_in_the_mean() -> None:
    """Over many draws, the models go the whole of the drawn step."""
    before, rule = updates(0).numpy(), SDMDSGD(rate=2.0)
    trained, rng = before + updates(1).numpy(), np.random.default_rng(0)
    mixed = np.mean([rule(trained, before, 0, rng) for _ in range(2000)], axis=0)
    towards = before.mean(axis=0) - before + 2 * updates(1).numpy()
    assert mixed == pytest.approx(before + rule.drawn * towards, abs=6e-3)


def test_a_mean_that_keeps_itself_is_the_mean() -> None:
    """Without noise and clipping DP-SRM's recursion gives the mean of each round; what is new adds.

    The noise of a later round is smaller by the kept part.
    """
    exact = OfDPSRM(1.0, DPSRM(sigma=0.0, clip=100.0, seed=0))
    noisy = DPSRM(sigma=1.0, clip=1.0, seed=0)
    for number in range(3):
        after = exact(torch.zeros(N, M), updates(number), number)
        assert after[0].numpy() == pytest.approx(updates(number).mean(0).numpy(), abs=1e-7)
        noisy(np.zeros((N, M), np.float32) + np.float32(1e-9))
    mean, new = exact.seen
    expected = updates(2).mean(0) - new.less * updates(1).mean(0)
    assert new.values.numpy() == pytest.approx(expected.numpy(), abs=1e-7)
    assert mean.sender is new.sender is None
    assert noisy.new.std() == pytest.approx((1 - noisy.kept) / N, rel=0.1)


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
    setting = Setting(clients=4, known=2, canaries=8, rounds=1)
    _, scores, clients = train(digits(), TRAININGS[0].start, setting, 0)
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
    assert {"a", "c"} == front([best, worse, private, models], area)


def test_one_decomposition_gives_all_fits() -> None:
    """Least squares are the product's, and a ridge is what numpy solves."""
    rng = np.random.default_rng(0)
    gradients, values = (
        torch.from_numpy(rng.normal(size=(6, 40))),
        torch.from_numpy(rng.normal(size=40)),
    )
    gradients[5] = gradients[4]  # the Gram matrix is singular
    gram, aligned = gradients @ gradients.T, alignment(gradients, values)
    found = fits(gram, aligned)
    assert found["least squares"].numpy() == pytest.approx(least_squares(gradients, values).numpy())
    for share in RIDGES:
        wide = gram.numpy() + share * np.trace(gram.numpy()) * np.eye(6)
        expected = np.linalg.solve(wide, aligned.numpy())
        assert found[f"ridge, {share:.1%}"].numpy() == pytest.approx(expected)


def test_unlike_clients_have_every_sample_once() -> None:
    """Their labels differ far more than those of clients alike, and nothing else does."""
    rows, spreads = {}, {}
    for alpha in (None, 0.3):
        clients, rest = dealt(digits(), 0, 20, 16, 16, alpha)
        assert {(16,)} == {tuple(client.canary_labels.shape) for client in clients}
        inside = [torch.cat([c.inputs[:16], c.canary_inputs]) for c in clients]
        rows[alpha] = sorted(torch.cat([*inside, digits().inputs[rest]]).sum((1, 2, 3)).tolist())
        labels = [torch.cat([c.labels[:16], c.canary_labels]) for c in clients]
        counts = np.stack([np.bincount(each, minlength=10) for each in labels])
        spreads[alpha] = counts.std(axis=0).mean()
    assert rows[None] == rows[0.3]
    assert spreads[0.3] > 2 * spreads[None]


def test_steps_go_on_from_where_the_last_one_ended() -> None:
    """The gradient of weighted samples is the weighted mean of theirs, at every model."""
    data, flat = digits(), Flat(mlp())
    inputs, labels = data.inputs[:12].view(2, 6, 1, 8, 8), data.labels[:12].view(2, 6)
    share = torch.softmax(torch.arange(12.0).view(2, 6), dim=1)
    models = flat.start.expand(2, -1)
    each = flat.sample_gradients(models, inputs, labels)
    expected = torch.einsum("ks,ksm->km", share, each)
    found = flat.weighted_gradients(models, inputs, labels, share)
    assert found.numpy() == pytest.approx(expected.numpy(), abs=1e-6)


def test_shards_that_are_cut_anew_show_more_in_time() -> None:
    """One of 50 has other values in each round; of one shard there is no cut."""
    found = areas(digits(), 1, 8, (1, 50))
    fixed, anew = found[View("least squares", 50)], found[View("least squares", 50, anew=True)]
    assert anew > fixed + 0.02
    assert View("least squares", 1, anew=True) not in found
