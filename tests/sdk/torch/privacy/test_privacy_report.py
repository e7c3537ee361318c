"""The privacy report finds planted leaks, and nothing where there is nothing."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from modelkin.errors import InvalidParameter
from modelkin.torch.privacy import PrivacyReport, membership, privacy_report
from modelkin.torch.privacy.metrics import auc, auc_error
from modelkin.torch.privacy.simulation import Round, View
from tests.support.digit_rounds import network, pairs, simulated


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    report = privacy_report(model, cross_entropy, overfitted, unseen, shards=(4,))
    by_loss = [row for row in report.membership if row.attack == "loss"]
    assert len(by_loss) == 4
    for row in by_loss:
        assert row.auc > 0.9
        assert row.global_auc > 0.9
        assert row.epsilon > 1
        assert row.p_value < 1e-6
        assert row.tpr > 0.03


def test_a_network_of_tokens_is_attacked() -> None:
    """Inputs may be whole numbers."""
    tokens = torch.randint(50, (600, 5), generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(40, 3))
    labels = tokens[:, 0] % 3
    report = privacy_report(
        model, cross_entropy, (tokens[:300], labels[:300]), (tokens[300:], labels[300:]), clients=5
    )
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
    )


def test_the_report_has_a_row_for_each_shape_and_attack(report: PrivacyReport) -> None:
    """And the global model beside each, which is the sum of all at one shard."""
    assert len(report.membership) == 2 * 2 * 2 * 3
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
    assert len(report.table().splitlines()) == 1 + (3 + 24) + (3 + 8)
    read = json.loads(report.to_json())
    assert read["membership"][0]["auc"] == report.membership[0].auc
    frame = report.to_pandas()
    assert list(frame.figure.value_counts().sort_index()) == [24, 8]
    assert frame.auc.dropna().iloc[0] == report.membership[0].auc


@pytest.mark.slow
def test_the_same_seed_gives_the_same_report_and_the_network_stays() -> None:
    """Another seed draws other clients."""
    model = network()
    before = copy.deepcopy(model.state_dict())
    how: dict[str, Any] = {"shards": (2,), "one_in": (1,)}
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
    how: dict[str, Any] = {"shards": (2,), "one_in": (1,)}
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
