"""Clusters that train models of their own, and the attacks on answers, on clients made for it."""

from __future__ import annotations

import numpy as np
import pytest

from studies import clustered
from studies.baselines import oracle
from studies.clustered import Personal, ifca, split_by_updates
from studies.federations import Federation
from studies.settings import Setting
from studies.tables import disclosure


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
