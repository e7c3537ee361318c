"""Values of donors by kNN-Shapley, beside all coalitions and scikit-learn."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from studies import baselines
from studies.federations import Federation
from studies.hub import Hub
from studies.settings import Setting
from studies.tables import uplift
from studies.tables.retrieval import ios
from tests.support.servers.server_process import Server


def test_values_are_those_of_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over all orders in which donors join of what each adds to the nearest two."""
    monkeypatch.setattr(uplift, "NEIGHBORS", 2)
    generator = np.random.default_rng(0)
    similarity, worths = generator.random((5, 5)), generator.random((5, 5))
    found = uplift.shapley(similarity, worths)
    for client in range(5):
        donors = [each for each in range(5) if each != client]

        def worth(members: tuple[int, ...], client: int = client) -> float:
            near = sorted(members, key=lambda each: -similarity[client, each])[:2]
            return float(sum(worths[client, each] for each in near) / 2)

        for donor in donors:
            orders = [order[: order.index(donor) + 1] for order in permutations(donors)]
            added = np.mean([worth(order) - worth(order[:-1]) for order in orders])
            assert found[client, donor] == pytest.approx(added)
        assert found[client, client] == 0


def test_samples_share_what_their_classifier_gets_right() -> None:
    """All clients' values are the share of right labels among the five nearest samples."""
    federation = Federation.of(Setting(network="mlp", clients=8))
    pool, labels = federation.samples.flatten(0, 1).flatten(1), federation.labels.flatten()
    probes, truth = federation.test_samples[0].flatten(1), federation.test_labels[0].numpy()
    classifier = KNeighborsClassifier(uplift.NEIGHBORS, metric="cosine").fit(pool, labels)
    right = classifier.predict_proba(probes)[np.arange(len(truth)), truth]
    by_class = np.array([right[truth == each].mean() for each in range(10)])
    found = uplift.samples_worth(federation)
    assert found.shape == (8, 8)
    assert found.sum(axis=1) == pytest.approx(federation.mixes @ by_class, abs=1e-3)


@pytest.mark.slow
def test_a_cell_ranks_by_each_value(sqlite_server: Server) -> None:
    """No ranking names a better donor than hindsight, and each has both rank correlations."""
    with Hub(sqlite_server.url) as hub:
        found = uplift.figures(Setting(network="mlp", clients=20), hub)
    rankings = [name for name, own in found.items() if "tau" in own]
    similar = (ios("A"), f"A: {baselines.PLAIN_COSINE}", baselines.HISTOGRAMS)
    assert {uplift.values(name, worth) for name in similar for worth in uplift.WORTHS} < {*rankings}
    for name in rankings:
        assert found[name]["gain"] <= found[uplift.BEST]["gain"]
        assert -1 <= found[name]["tau of means"] <= 1
