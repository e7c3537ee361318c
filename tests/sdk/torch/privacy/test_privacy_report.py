"""The privacy report finds planted leaks, and nothing where there is nothing."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from modelkin.errors import InvalidParameter
from modelkin.torch.privacy import PrivacyReport, membership, privacy_report
from modelkin.torch.privacy.flat_network import FlatNetwork
from modelkin.torch.privacy.metrics import auc, auc_error
from modelkin.torch.privacy.reconstruction import Reconstruction
from modelkin.torch.privacy.simulation import Round, Samples, View, simulate

Pair = tuple[Tensor, Tensor]


@cache
def digits() -> tuple[Samples, Samples]:
    """A random split of the digits: members and non-members."""
    inputs, targets = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(targets))
    images = torch.tensor(inputs[order] / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    samples = Samples(images, torch.tensor(targets[order]))
    return samples.take(torch.arange(800)), samples.take(torch.arange(800, 1600))


def pairs() -> tuple[Pair, Pair]:
    members, others = digits()
    return (members.inputs, members.targets), (others.inputs, others.targets)


def network(hidden: int = 48) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Sigmoid(), nn.Linear(hidden, 10))


def simulated(model: nn.Module, clients: int = 10, seed: int = 1) -> Round:
    return simulate(
        FlatNetwork(model, cross_entropy),
        *digits(),
        clients=clients,
        batch=24,
        canaries=16,
        learning_rate=0.1,
        seed=seed,
    )


def membership_aucs(round_: Round, view: View) -> dict[str, float]:
    found = membership.scores(round_, view, seed=1)
    return {attack: auc(scores, round_.truth.ravel()) for attack, scores in found.items()}


def test_a_shard_shows_members() -> None:
    """Also one of sixteen: an aggregator ranks by the coordinates that it has."""
    round_ = simulated(network(), clients=20)
    for shards in (1, 4, 16):
        found = membership_aucs(round_, View(shards, 1, conceal=False))
        assert found["alignment"] > 0.5 + 3 * auc_error(0.5, 160, 160)
        assert found["least squares"] > 0.7


def test_updates_without_a_member_give_chance() -> None:
    """Random updates as large as the real ones, plain and summed: every score within chance."""
    round_ = simulated(network(), clients=20)
    noise = torch.randn(round_.updates.shape, generator=torch.Generator().manual_seed(2))
    nothing = replace(round_, updates=noise * round_.updates.std())
    sigma = auc_error(0.5, 160, 160)
    for conceal in (False, True):
        for value in membership_aucs(nothing, View(4, 1, conceal)).values():
            assert abs(value - 0.5) < 3 * sigma


def test_a_sum_of_ten_shows_no_more_than_the_global_model() -> None:
    """At one shard it is what two global models show; at more, less. Over four rounds."""
    sums, alone, shown = [], [], []
    for seed in range(4):
        round_ = simulated(network(), seed=seed)
        sums.append(membership_aucs(round_, View(4, 1, conceal=True)))
        alone.append(membership_aucs(round_, View(4, 1, conceal=False)))
        shown.append(membership_aucs(round_, View(1, 1, conceal=True)))
    error = auc_error(0.5, 320, 320)
    for attack in membership.ATTACKS:
        in_sums, in_global = (np.mean([row[attack] for row in rows]) for rows in (sums, shown))
        assert in_sums <= in_global + 2 * error
    assert np.mean([row["alignment"] for row in sums]) < 0.5 + 2.5 * error
    assert np.mean([row["alignment"] for row in alone]) > 0.6


def test_a_network_that_memorized_its_members_gives_them_away() -> None:
    """By the loss, and by the global model as well: no way of averaging hides that."""
    model, (members, others) = network(128), pairs()
    overfitted = (members[0][:240], members[1][:240].roll(1))  # labels to be memorised
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    for _ in range(250):
        optimizer.zero_grad()
        cross_entropy(model(overfitted[0]), overfitted[1]).backward()
        optimizer.step()
    unseen = (others[0], others[1].roll(1))
    report = privacy_report(model, cross_entropy, overfitted, unseen, shards=(4,), examples=0)
    by_loss = [row for row in report.membership if row.attack == "loss"]
    assert len(by_loss) == 4
    for row in by_loss:
        assert row.auc > 0.9
        assert row.global_auc > 0.9
        assert row.epsilon > 1
        assert row.p_value < 1e-6
        assert row.tpr > 0.03


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


def test_fewer_values_than_the_input_has_numbers_do_not_show_it() -> None:
    """The rule of thumb: 31 values, 64 numbers."""
    attacks = reconstruction(network())
    chance = attacks.chance().psnr
    for quality in attacks.of(View(16, 7, conceal=False)).values():
        assert quality.psnr < chance + 4


def test_noise_shows_no_input() -> None:
    """Gradients replaced by noise of their size: no better than the mean of other samples."""
    attacks = reconstruction(network())
    real = attacks.gradients
    noise = torch.randn(real.shape, generator=torch.Generator().manual_seed(0))
    attacks.gradients = noise * real.std()
    for quality in attacks.of(View(1, 1, conceal=False)).values():
        assert quality.psnr < attacks.chance().psnr + 1


def test_a_sum_of_single_samples_is_no_shelter() -> None:
    """The inputs of ten clients, found together in a quarter of their sum, and in the global model
    as well: sums hide members of large batches, not inputs fewer than the values.
    """
    report = privacy_report(
        network(),
        cross_entropy,
        *pairs(),
        shards=(4,),
        one_in=(1,),
        conceal=(True,),
        steps=120,
    )
    rows = {row.attack: row for row in report.inversion}
    assert rows["matching"].psnr > 20 > rows["matching"].chance_psnr
    assert rows["matching"].global_psnr >= rows["matching"].psnr - 3
    assert rows["completion"].psnr < 20


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


def test_tokens_have_no_inversion() -> None:
    """Whole numbers cannot be searched by gradients; membership is attacked all the same."""
    tokens = torch.randint(50, (600, 5), generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(40, 3))
    labels = tokens[:, 0] % 3
    report = privacy_report(
        model, cross_entropy, (tokens[:300], labels[:300]), (tokens[300:], labels[300:]), clients=5
    )
    assert report.inversion == ()
    assert len(report.membership) == 36


@pytest.fixture(scope="module")
def report() -> PrivacyReport:
    return privacy_report(
        network(),
        cross_entropy,
        *pairs(),
        shards=(1, 4),
        one_in=(1, 16),
        conceal=(False, True),
        clients=4,
        examples=1,
        steps=2,
    )


def test_the_report_has_a_row_for_each_shape_and_attack(report: PrivacyReport) -> None:
    """And the global model beside each, which is the sum of all at one shard."""
    assert len(report.membership) == 2 * 2 * 2 * 3
    assert len(report.inversion) == 2 * 2 * 2 * 2
    assert len(report.sizes) == 2 * 2 * 2
    for row in report.membership:
        if row.conceal and row.shards == 1:
            assert (row.auc, row.tpr) == (row.global_auc, row.global_tpr)
    plain, concealed = (
        next(r for r in report.sizes if (r.shards, r.one_in, r.conceal) == (4, 16, conceal))
        for conceal in (False, True)
    )
    assert plain.values == concealed.values == report.parameters // 64
    assert (plain.numbers, concealed.numbers) == (24 * 64, 4 * 24 * 64)


def test_the_report_is_text_json_and_a_table(report: PrivacyReport) -> None:
    """All have all rows."""
    assert len(report.table().splitlines()) == 1 + (3 + 24) + (3 + 16) + (3 + 8)
    read = json.loads(report.to_json())
    assert read["membership"][0]["auc"] == report.membership[0].auc
    frame = report.to_pandas()
    assert list(frame.figure.value_counts().sort_index()) == [16, 24, 8]
    assert frame.auc.dropna().iloc[0] == report.membership[0].auc


def test_the_same_seed_gives_the_same_report_and_the_network_stays() -> None:
    """Another seed draws other clients."""
    model = network()
    before = copy.deepcopy(model.state_dict())
    how: dict[str, Any] = {"shards": (2,), "one_in": (1,), "examples": 1, "steps": 3}
    first, again, other = (
        privacy_report(model, cross_entropy, *pairs(), seed=seed, **how) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_a_loader_gives_what_a_pair_gives() -> None:
    """Batches are joined in their order."""
    (inputs, targets), others = pairs()
    loader = [(inputs[at : at + 100], targets[at : at + 100]) for at in range(0, 800, 100)]
    how: dict[str, Any] = {"shards": (2,), "one_in": (1,), "examples": 0}
    found = privacy_report(network(), cross_entropy, loader, others, **how)
    assert found == privacy_report(network(), cross_entropy, *pairs(), **how)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"shards": ()}, "shards"),
        ({"shards": (0,)}, "shards"),
        ({"one_in": (1.5,)}, "one_in"),
        ({"one_in": (10**6,)}, "one_in"),
        ({"shards": (10**6,)}, "shards"),
        ({"conceal": (1,)}, "conceal"),
        ({"clients": 1}, "clients"),
        ({"clients": 100}, "members"),
        ({"batch": True}, "batch"),
        ({"canaries": 25}, "canaries"),
        ({"examples": -1}, "examples"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"members": (torch.zeros(3, 64), torch.zeros(4))}, "members"),
        ({"non_members": (torch.zeros(0, 1, 8, 8), torch.zeros(0))}, "non_members"),
        ({"non_members": [torch.zeros(3)]}, "non_members"),
        ({"network": nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64))}, "model"),
        ({"network": nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double())}, "network"),
    ],
)
def test_what_cannot_be_attacked_is_refused_by_name(wrong: dict[str, Any], field: str) -> None:
    """Before anything is computed."""
    members, others = pairs()
    given: dict[str, Any] = {
        "network": network(),
        "loss": cross_entropy,
        "members": members,
        "non_members": others,
    }
    with pytest.raises(InvalidParameter) as raised:
        privacy_report(**(given | wrong))
    assert raised.value.field == field
