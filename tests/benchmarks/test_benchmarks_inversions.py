"""Nothing that a method sends speaks against the gradient that it is of, beyond its own errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from benchmarks.eris import data
from benchmarks.eris.baselines import rounded
from benchmarks.eris.inversions.attacks import (
    ATTACKS,
    attacked,
    mean_image,
    mismatched,
    prepared,
)
from benchmarks.eris.inversions.labels import read_off, searched
from benchmarks.eris.inversions.senders import CLIENTS, SENDERS, Sender
from benchmarks.eris.networks import Flat, lenet, mlp
from modelkin.torch.privacy.flat_network import FlatNetwork
from tests.support.digit_rounds import digits

M = 5000
BY_NAME = {each.name: each for each in SENDERS}


def gradients() -> torch.Tensor:
    """Of all clients; many values are small, as in a network."""
    rng = np.random.default_rng(0)
    return torch.from_numpy((rng.standard_normal((CLIENTS, M)) ** 3).astype(np.float32))


@pytest.mark.parametrize("sender", SENDERS, ids=BY_NAME)
def test_the_truth_is_as_far_off_as_a_receiver_expects(sender: Sender) -> None:
    """Nothing where values are exact, little more than expected elsewhere, and less than others."""
    if sender.name.startswith(("noise", "Q-DPSGD")):
        pytest.skip("what is sent says little of the gradient")
    sight, truth = sender.see(gradients(), 1), gradients()
    if sight.clip:
        truth = truth * (sight.clip / truth.norm(dim=1, keepdim=True)).clamp(max=1)
    own = truth.mean(0) if sight.summed else truth[0]
    best = sight.knowing or sight.plain
    assert float(best(own)) <= 3 * sight.error + 1e-6
    assert float(best(-own)) > float(best(own)) + 1e-3


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("FedAvg", M),
        ("Top-k, 99% withheld", M / 100),
        ("PriPrune, 10%", 0.9 * M),
        ("SoteriaFL, c = 20, sigma = 0", M / 20),
        ("SDM-DSGD, c = 5, sigma = 0", M / 5),
        ("DP-SRM, sums of 10, sigma = 1 of the sum", M),
        ("Ako, 5 parts", M / 5),
        ("ERIS, A = 50", M / 50),
        ("ERIS, A = 2, c = 16", M / 32),
    ],
)
def test_a_receiver_has_so_many_values(name: str, values: float) -> None:
    """A share of the gradient, up to one."""
    sight = BY_NAME[name].see(gradients(), 1)
    assert abs(sight.values - values) <= 1


def test_rounding_is_right_on_average() -> None:
    """Within a step of the value each time, and the value itself in the mean of many."""
    values, rng = gradients()[0].numpy()[:600], np.random.default_rng(0)
    draws = [rounded(values, 4, rng) for _ in range(400)]
    step = draws[0][1]
    assert all(bool((np.abs(near - values) <= step * 1.0001).all()) for near, _ in draws)
    assert np.abs(np.mean([near for near, _ in draws], axis=0) - values).max() < 0.2 * step.max()


def test_labels_are_read_off_a_last_layer() -> None:
    """Off all of it, and off a tenth, where its inputs are positive."""
    flat, (members, _) = Flat(mlp(hidden=64)), digits()
    for place in range(10):
        image, label = members.inputs[place], members.targets[place]
        gradient = flat.gradients(flat.start[None], image[None, None], label[None, None])[0]
        at = torch.from_numpy(np.random.default_rng(place).permutation(flat.size)[: flat.size // 4])
        for seen in (torch.arange(flat.size), at):
            assert int(label) == read_off(gradient[seen], seen, flat.size, 10, 64)


def test_attacks_find_images_and_labels() -> None:
    """Half of a gradient shows both where the mean image is far off, to who searches alone too."""
    case = prepared(data.digits(), 2)
    network = FlatNetwork(lenet(8), cross_entropy)
    image, label = case.images[0, :1], case.labels[0, :1]
    gradient = network.gradient(image, label)
    assert torch.allclose(gradient, case.gradients[0, 0], atol=1e-6)
    values, found = attacked(case, BY_NAME["ERIS, A = 2"], 60)
    assert values == network.size // 2
    chance = np.mean(mean_image(case).psnr)
    assert min(found[ATTACKS[0]].psnr) > chance + 5
    assert min(found[ATTACKS[2]].psnr) > chance + 15
    assert ATTACKS[1] not in found
    labels = searched(case, 2, 10, 60)
    assert (labels.values, labels.read, labels.found) == (values, 1.0, 1.0)
    assert min(labels.images.psnr) > chance


def test_who_knows_the_clipping_sees_through_it() -> None:
    """Taken for the gradient's own, clipped values lead nowhere."""
    case = prepared(data.digits(), 2)
    _, found = attacked(case, BY_NAME["DP-SGD, clip 1, sigma = 0.0001"], 60)
    sent, knowing = (np.mean(found[attack].psnr) for attack in ATTACKS[:2])
    assert knowing > sent + 10


def test_guesses_of_a_sum_are_clipped_each() -> None:
    """The true images of all members fit DP-SRM's sum, and only with their gradients clipped."""
    case = prepared(data.digits(), 1)
    sight = BY_NAME["DP-SRM, sums of 10, sigma = 0.01 of the sum"].see(case.gradients[0], 0)
    truths, rows = case.images.flatten(2), torch.tensor([0])
    clipped, whole = (
        float(mismatched(case, [sight.plain], rows, truths, clip=clip)) for clip in (1.0, None)
    )
    assert clipped == pytest.approx(sight.error, rel=0.1)
    assert whole > 10 * clipped
