"""Ways to make a client's model in each round do what their names say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.federation.both import (
    BOTH,
    CHOSEN,
    CLUSTERS,
    FEDPER,
    FEDREP,
    HELD_OUT,
    ONE,
    PLAIN,
    Way,
    averaged,
    clusters_of,
    trained,
    trunk_of,
)
from demo.cohort import Cohort, Weights
from studies.clustered import Personal
from studies.federations import Federation, flat
from studies.settings import Setting

ROUNDS = 2
GROUPS = torch.arange(20) % 4


@pytest.fixture(scope="module")
def federation() -> Federation:
    """Clients in four groups, with 20 samples each."""
    torch.set_num_threads(1)
    return Federation.planted(Setting("digits", "mlp", "rotations", 20, 3)).with_samples(20)


def accuracy(federation: Federation, weights: Weights) -> float:
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    found = cohort.accuracies(weights, federation.test_samples, federation.test_labels)
    return float(found.mean())


def test_plain_ways_are_those_of_the_studies(federation: Federation) -> None:
    """The same clients, batches and averages, to the last digit."""
    personal = Personal(federation, rounds=ROUNDS)
    for way, labels in zip(PLAIN, (GROUPS * 0, GROUPS, torch.arange(20)), strict=True):
        found = accuracy(federation, trained(federation, GROUPS, way, ROUNDS))
        assert personal.accuracy(labels.numpy()) == pytest.approx(found, abs=1e-12)


def test_means_are_of_each_group() -> None:
    """By brute force."""
    values = torch.randn(20, 3, 2, generator=torch.Generator().manual_seed(0))
    found = averaged({"w": values}, GROUPS)["w"]
    for client in range(20):
        expected = np.mean([values[k].numpy() for k in range(20) if k % 4 == client % 4], axis=0)
        np.testing.assert_allclose(found[client].numpy(), expected, atol=1e-6)


def test_in_one_cluster_every_mix_is_the_one_model(federation: Federation) -> None:
    """Both aggregates are the same, and so is any share of them."""
    expected = flat(trained(federation, GROUPS * 0, ONE, ROUNDS))
    for way in BOTH[:3]:
        found = flat(trained(federation, GROUPS * 0, way, ROUNDS))
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_mix_is_between_both_models(federation: Federation) -> None:
    """After one round from common weights both aggregates are those of the plain ways."""
    cluster, common = (flat(trained(federation, GROUPS, way, 1)) for way in (CLUSTERS, ONE))
    for way in BOTH[:3]:
        (share,) = way.shares
        found = flat(trained(federation, GROUPS, way, 1))
        np.testing.assert_allclose(found, share * cluster + (1 - share) * common, atol=1e-6)


def test_the_better_model_is_chosen_on_samples_held_out(federation: Federation) -> None:
    """Each client ends with one of two models, the one that is better on samples not trained on."""
    held = federation.labels.shape[1] // HELD_OUT
    rest = replace(
        federation, samples=federation.samples[:, held:], labels=federation.labels[:, held:]
    )
    models = [trained(rest, GROUPS, way, 1) for way in (CLUSTERS, ONE)]
    found = flat(trained(federation, GROUPS, CHOSEN, 1))
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    for client in range(20):
        losses = []
        for weights in models:
            outputs = cohort.outputs(weights, federation.samples[:, :held])[client]
            labels = federation.labels[client, :held]
            losses.append(float(torch.nn.functional.cross_entropy(outputs, labels)))
        expected = flat(models[int(np.argmin(losses))])[client]
        np.testing.assert_allclose(found[client], expected, atol=1e-6)


@pytest.mark.parametrize("way", [FEDPER, FEDREP], ids=lambda way: way.name)
def test_trunks_are_common_and_heads_are_not(federation: Federation, way: Way) -> None:
    """Both have moved."""
    start, found = federation.start, trained(federation, GROUPS, way, 1)
    for name, values in found.items():
        assert (name in trunk_of(federation)) == all(torch.equal(values[0], v) for v in values)
        assert not torch.equal(values, start[name])


def test_clusters_are_the_planted_groups() -> None:
    """By supports at the common weights."""
    whole = Federation.planted(Setting("digits", "mlp", "labels", 20, 0))
    found = clusters_of(whole)
    assert 4 == len({(int(a), int(b)) for a, b in zip(found, GROUPS, strict=True)})
