"""Table 4's true uplift: what a client gains that starts from the model of a donor.

The paper reproduces kNN-Shapley (Jia et al., VLDB 2019) with a similarity of clients in its
neighbour stage, and does not say what a donor is worth. Here it is what the service offers: 1 where
the donor's main label is the client's, or a metric of the donor's model, its accuracy. A game is
played for each client, so that a donor has a value for each, and its mean for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from scipy import stats
from torch.nn.functional import normalize

from demo.cohort import Cohort, Weights, repeat
from modelkin.core.kinship.shapley import knn_shapley
from studies import baselines
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import others
from studies.settings import Setting, grid
from studies.tables.retrieval import ios, supports_of

__all__ = [
    "ALONE",
    "BEST",
    "NAME",
    "NEIGHBORS",
    "OF_SAMPLES",
    "RANDOM",
    "WORTHS",
    "figures",
    "samples_worth",
    "settings",
    "shapley",
    "values",
]

NAME: Final = "uplift"
RANDOM: Final = "a random donor"
ALONE: Final = "no donor"
BEST: Final = "the best donor, in hindsight"
WORTHS: Final = ("main labels", "accuracies")
OF_SAMPLES: Final = "kNN-Shapley of samples, by pixels (an oracle)"
NEIGHBORS: Final = 5
"""K of kNN-Shapley, the service's default."""
_PROBES: Final = 512
"""Test samples of the game of samples, at most about so many."""
_SEEDS: Final = 5
_EPOCHS: Final = 8
"""The epochs of a donor."""
_OWN: Final = 2
"""The epochs of a client that starts from a donor's model; alone it has those of both."""


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Both Dirichlet splits, with five seeds: two more than the paper has."""
    return grid(seeds[:_SEEDS], data, network)


def figures(setting: Setting, hub: Hub) -> Figures:
    """Accuracy from the first donor of each ranking, and its rank correlation with all uplifts."""
    federation = Federation.of(setting)
    donors = _trained(federation, federation.start, _EPOCHS)
    uplifts = _uplifts(federation, donors)
    alone = _weighed(
        _by_class(federation, _trained(federation, federation.start, _EPOCHS + _OWN)), federation
    )
    gains = uplifts - alone[:, None]
    found: Figures = {
        ALONE: {"accuracy": float(alone.mean())},
        RANDOM: {"accuracy": float(others(uplifts).mean()), "gain": float(others(gains).mean())},
        BEST: {
            "accuracy": float(others(uplifts).max(axis=1).mean()),
            "gain": float(others(gains).max(axis=1).mean()),
        },
    }
    mains = federation.mixes.argmax(axis=1)
    accuracies = np.tile(_by_class(federation, donors).mean(axis=1), (len(mains), 1))
    worths = (mains[:, None] == mains).astype(np.float64), accuracies
    for name, similarity in _similarities(federation, hub):
        found[name] = _judged(similarity, similarity, uplifts, gains)
        for worth, each in zip(WORTHS, worths, strict=True):
            ranked = shapley(similarity, each)
            found[values(name, worth)] = _judged(ranked, similarity, uplifts, gains)
    by_samples = samples_worth(federation)
    found[OF_SAMPLES] = _judged(by_samples, by_samples, uplifts, gains)
    return found


def values(similarity: str, worth: str) -> str:
    """The name of a row of kNN-Shapley."""
    return f"kNN-Shapley of {worth}, {similarity}"


def shapley(similarity: Floats, worths: Floats) -> Floats:
    """The value of each donor (column) to each client (row), whose own value is 0, ``(N, N)``.

    Args:
        similarity: ``(N, N)``.
        worths: of a donor (column) alone to a client (row), ``(N, N)``.
    """
    found = np.zeros_like(similarity)
    for client, near in enumerate(similarity):
        order = np.argsort(-near, kind="stable")
        order = order[order != client]
        found[client, order] = knn_shapley(worths[client, order], NEIGHBORS)
    return found


def samples_worth(federation: Federation) -> Floats:
    """What all samples of a donor (column) are worth to a client (row) by their values, ``(N, N)``.

    The game is that of Jia et al.: all clients' samples, the nearest by the cosine of their pixels,
    classify test samples. A client counts these by its own labels.
    """
    count = len(federation.labels)
    pool = normalize(federation.samples.flatten(0, 1).flatten(1).double(), dim=1)
    labels = federation.labels.flatten()
    step = max(1, federation.test_labels.shape[1] // _PROBES)
    probes, truth = federation.test_samples[0, ::step], federation.test_labels[0, ::step]
    nearness = normalize(probes.flatten(1).double(), dim=1) @ pool.T
    by_probe = np.zeros((len(truth), len(labels)))
    for own, near, label in zip(by_probe, nearness, truth, strict=True):
        order = near.argsort(descending=True, stable=True)
        own[order.numpy()] = knn_shapley((labels[order] == label).numpy(), NEIGHBORS)
    by_donor = by_probe.reshape(len(truth), count, -1).sum(axis=2)
    classes = range(federation.mixes.shape[1])
    by_class = np.stack([by_donor[truth.numpy() == each].mean(axis=0) for each in classes])
    return np.asarray(federation.mixes @ by_class)


def _judged(ranked: Floats, similarity: Floats, uplifts: Floats, gains: Floats) -> dict[str, float]:
    """What a ranking's first donors give, of equals the nearest; and rank correlations."""
    first = []
    for client, (row, near) in enumerate(zip(ranked, similarity, strict=True)):
        order = np.lexsort((-near, -row))
        first.append(int(order[order != client][0]))
    at = np.arange(len(first)), first
    pairs = zip(others(ranked), others(gains), strict=True)
    means = (others(matrix.T).mean(axis=1) for matrix in (ranked, gains))
    return {
        "accuracy": float(uplifts[at].mean()),
        "gain": float(gains[at].mean()),
        "tau": float(np.nanmean([stats.kendalltau(a, b).statistic for a, b in pairs])),
        "tau of means": float(stats.kendalltau(*means).statistic),
    }


def _similarities(federation: Federation, hub: Hub) -> Iterator[tuple[str, Floats]]:
    importances = federation.importances
    supports = supports_of(federation, importances, "10%")
    space_name = f"{federation.setting.name}-uplift"
    with hub.space(space_name, supports, importances.shape[1]) as space:
        yield ios("A"), space.matrix()
    similarities = baselines.of_importance(importances)
    for name in (baselines.PLAIN_COSINE, f"{baselines.PLAIN_EUCLIDEAN}^1/2"):
        yield f"A: {name}", similarities[name]
    yield baselines.HISTOGRAMS, baselines.oracle(federation.mixes)


def _uplifts(federation: Federation, donors: Weights) -> Floats:
    """The accuracy of each client (row) that starts from each donor (column), ``(N, N)``."""
    count = len(federation.labels)
    columns = []
    for donor in range(count):
        start = {name: values[donor : donor + 1] for name, values in donors.items()}
        weights = _trained(federation, repeat(start, count), _OWN)
        columns.append(_weighed(_by_class(federation, weights), federation))
    return np.stack(columns, axis=1)


def _trained(federation: Federation, weights: Weights, epochs: int) -> Weights:
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    generator = torch.Generator().manual_seed(federation.setting.seed)
    cohort.train(weights, epochs, generator)
    return weights


@torch.no_grad()
def _by_class(federation: Federation, weights: Weights) -> Floats:
    """The accuracy of each client's model on test samples of each class, ``(N, classes)``."""
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    labels = federation.test_labels
    right = (cohort.outputs(weights, federation.test_samples).argmax(-1) == labels).double()
    classes = range(federation.mixes.shape[1])
    by_class = torch.stack([right[:, labels[0] == each].mean(dim=1) for each in classes], dim=1)
    return np.asarray(by_class.numpy(), np.float64)


def _weighed(by_class: Floats, federation: Federation) -> Floats:
    """Accuracies by class, weighed by each client's own labels, ``(N,)``."""
    return np.asarray((by_class * federation.mixes).sum(axis=1))
