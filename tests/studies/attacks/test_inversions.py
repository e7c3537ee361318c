"""Attacks on inputs find planted ones, and nothing where there is nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from modelkin.torch.privacy.simulation import View
from studies.attacks.inversions import inversions
from studies.attacks.reconstruction import Reconstruction
from tests.support.digit_rounds import digits, network, simulated


def reconstruction(model: nn.Module, **how: Any) -> Reconstruction:
    settings = {"examples": 3, "steps": 80, "seed": 1} | how
    return Reconstruction(simulated(model), digits()[1], **settings)


def test_half_of_a_gradient_shows_its_input() -> None:
    """By matching and by completion, where the guess without any gradient is far off."""
    attacks = reconstruction(network())
    assert attacks.chance().psnr < 15
    for quality in attacks.of(View(2, 1, conceal=False)).values():
        assert quality.psnr > 50
        assert quality.ssim is not None
        assert quality.ssim > 0.99


@pytest.mark.slow
def test_fewer_values_than_the_input_has_numbers_do_not_show_it() -> None:
    """The rule of thumb: 31 values, 64 numbers."""
    attacks = reconstruction(network())
    chance = attacks.chance().psnr
    for quality in attacks.of(View(16, 7, conceal=False)).values():
        assert quality.psnr < chance + 4


@pytest.mark.slow
def test_noise_shows_no_input() -> None:
    """Gradients replaced by noise of their size: no better than the mean of other samples."""
    attacks = reconstruction(network())
    real = attacks.gradients
    noise = torch.randn(real.shape, generator=torch.Generator().manual_seed(0))
    attacks.gradients = noise * real.std()
    for quality in attacks.of(View(1, 1, conceal=False)).values():
        assert quality.psnr < attacks.chance().psnr + 1


@pytest.mark.slow
def test_a_sum_of_single_samples_is_no_shelter() -> None:
    """The inputs of ten clients, found together in a quarter of their sum, and in the global model
    as well: sums hide members of large batches, not inputs fewer than the values.
    """
    found = inversions(simulated(network()), digits()[1], [View(4, 1, conceal=True)], steps=120)
    rows = {row.attack: row for row in found}
    assert rows["matching"].psnr > 20 > rows["matching"].chance_psnr
    assert rows["matching"].global_psnr >= rows["matching"].psnr - 3
    assert rows["completion"].psnr < 20


def test_each_shape_of_a_round_has_a_row_for_each_attack() -> None:
    """And the global model beside each, which is the sum of all at one shard."""
    views = [View(a, c, hidden) for hidden in (False, True) for c in (1, 16) for a in (1, 4)]
    round_ = simulated(network(), clients=4)
    rows = list(inversions(round_, digits()[1], views, examples=1, steps=2))
    attacks = ("matching", "completion")
    assert [(view, attack) for view in views for attack in attacks] == [
        (View(row.shards, row.one_in, row.conceal), row.attack) for row in rows
    ]
    for row in rows:
        if row.conceal and row.shards == 1:
            assert (row.global_psnr, row.global_ssim) == (row.psnr, row.ssim)


def test_a_linear_layer_without_a_bias_is_completed_up_to_its_scale() -> None:
    """The scale is then that of other samples."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32, bias=False), nn.Sigmoid(), nn.Linear(32, 10)
    )
    quality = reconstruction(model, steps=1).of(View(2, 1, conceal=False))["completion"]
    assert quality.psnr > 15


def test_completion_needs_a_linear_layer_at_the_input() -> None:
    """A convolution that comes first leaves matching alone."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(144, 10))
    assert set(reconstruction(model, steps=1).of(View(1, 1, conceal=False))) == {"matching"}
