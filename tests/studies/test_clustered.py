"""Clusters that train models of their own, and the attacks on answers, on clients made for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from demo.cohort import repeat, stack
from demo.planted import plant
from studies import clustered
from studies.baselines import oracle
from studies.clustered import STEP, Meta, Personal, ifca, on_graph, split_by_updates
from studies.federations import Federation
from studies.settings import Setting
from studies.tables import clusters, disclosure
from studies.tables.graphs import mixing


@pytest.fixture
def federation(monkeypatch: pytest.MonkeyPatch) -> Federation:
    """Eight clients in four groups by labels, who train for three rounds."""
    monkeypatch.setattr(clustered, "ROUNDS", 3)
    return Federation.planted(Setting(split="labels", network="mlp", clients=8))


@pytest.mark.slow
def test_the_numbers_of_clusters_do_not_matter(federation: Federation) -> None:
    """The same clusters under other numbers train the same models, and these only once."""
    personal = Personal(federation)
    groups = federation.groups
    assert personal.accuracy(groups) == personal.accuracy(7 - groups)
    assert 1 == len(personal.accuracies)
    assert personal.accuracy(groups) > personal.accuracy(np.zeros(8, np.int64))


def test_clients_test_on_what_they_do_not_train_on(federation: Federation) -> None:
    """What a client is tested on, no client trains on."""
    trained = {row.tobytes() for own in federation.samples.numpy() for row in own}
    tested = [row.tobytes() for own in federation.test_samples.numpy() for row in own]
    assert not trained & set(tested)


@pytest.mark.slow
def test_both_methods_label_every_client(federation: Federation) -> None:
    """IFCA has as many clusters as it is given, at most; the other splits none in three rounds."""
    labels, accuracies = ifca(federation, 4)
    assert (8,) == labels.shape
    assert set(labels.tolist()) <= set(range(4))
    assert all(0 < accuracy <= 1 for accuracy in accuracies)
    labels, accuracies = split_by_updates(federation)
    assert [0] * 8 == labels.tolist()
    assert accuracies == pytest.approx(Personal(federation).by_round(labels))
    assert 3 == len(accuracies)


@pytest.mark.slow
def test_a_graph_of_clusters_trains_what_clusters_do(federation: Federation) -> None:
    """Where each client's neighbours are its group, and all alike, models are of its cluster."""
    same = federation.groups[:, None] == federation.groups[None]
    shares = same / same.sum(axis=1, keepdims=True)
    before, after = on_graph(federation, shares, meta=False)
    assert Personal(federation).accuracy(federation.groups) == pytest.approx(before)
    assert 0 < after <= 1


def test_averages_are_in_proportion_to_the_similarity_of_the_nearest() -> None:
    """Each client has itself and its k nearest, as a loop over all pairs finds them."""
    rng = np.random.default_rng(0)
    similarity = rng.random((7, 7))
    similarity = (similarity + similarity.T) / 2
    np.fill_diagonal(similarity, 1)
    found = mixing(similarity, 3)
    for client, row in enumerate(similarity):
        others = sorted({*range(7)} - {client}, key=lambda other: -row[other])
        kept = [client, *others[:3]]
        expected = [row[at] / row[kept].sum() if at in kept else 0 for at in range(7)]
        assert found[client] == pytest.approx(expected)


def test_meta_gradients_are_those_after_a_step() -> None:
    """One batch moves weights by the gradient of its second half after a step on its first."""
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 4), torch.randn(1, 10, 3), torch.randint(4, (1, 10))
    weights = repeat(stack([model]), 1)
    Meta(model, x, y).train(weights, 1, torch.Generator().manual_seed(1), rate=0.5, decay=0)
    order = torch.rand(1, 10, generator=torch.Generator().manual_seed(1)).argsort(1)[0]
    first, second = order[:5], order[5:]
    start = [each.detach().clone() for each in model.parameters()]
    for half, rate in ((first, STEP), (second, 0.5)):
        loss = cross_entropy(model(x[0, half]), y[0, half])
        found = torch.autograd.grad(loss, [*model.parameters()])
        with torch.no_grad():
            for own, origin, slope in zip(model.parameters(), start, found, strict=True):
                own.copy_(origin - rate * slope)
    for name, own in model.named_parameters():
        assert torch.allclose(own, weights[name][0], atol=1e-6)


def test_clients_of_any_samples_have_no_groups() -> None:
    """IID as the paper has it: labels by chance, and nothing to find."""
    found = plant(clusters.IID, num_clients=20)
    assert [0] * 20 == found.groups.tolist()
    assert np.ptp(found.mixes, axis=0).any()


def test_the_attack_on_answers_reads_what_they_say() -> None:
    """It learns labels from similarities that follow them, and nothing from chance."""
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet(np.full(10, 0.3), 40)
    order = rng.permutation(40)
    named = disclosure.inferred(oracle(mixes), mixes, order[:20], order[20:])
    noise = rng.random((40, 40))
    blind = disclosure.inferred(noise + noise.T, mixes, order[:20], order[20:])
    assert named > 0.9
    assert 0.4 < blind < 0.6
