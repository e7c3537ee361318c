"""What other definitions of the same figures give: oracles, rank measures, presence of a label.

The paper's oracle is a Wasserstein distance of label histograms, which needs a distance of labels:
along their numbers, as libraries compute it, or 0 and 1, where it is the total variation. By the
latter the paper computes FedBary, too: the overlap of two histograms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from scipy import stats

from demo.data import jensen_shannon
from modelkin import select_support
from modelkin.core.similarity.overlap import shared_count
from studies import baselines
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import Oracle, others, ranking
from studies.settings import DIRICHLET, PATHOLOGICAL, Setting, grid
from studies.tables.disclosure import PRESENT, importances_of_classes, label_presence
from studies.tables.retrieval import EPOCHS, ios, supports_of

__all__ = [
    "BINS",
    "CKA",
    "FEDBARY",
    "LEAST",
    "NAME",
    "ORACLES",
    "figures",
    "settings",
    "total_variation",
    "wasserstein",
]

NAME: Final = "definitions"
FEDBARY: Final = "FedBary: overlap of label histograms"
CKA: Final = "B: linear CKA on a probe set"
BINS: Final = 5
"""Bins of equal size, of the oracle's similarity of pairs."""
LEAST: Final = ("any sample", "5% of the samples", "10% of the samples")
"""From which share of its samples on a client has a label."""
_SHARES: Final = (1e-9, 0.05, PRESENT)
_NEIGHBOURS: Final = 8

Distances = Callable[[Floats], Floats]


def total_variation(mixes: Floats) -> Floats:
    """Half of the differences of all pairs of rows ``(n, classes)``, shape ``(n, n)``."""
    return np.asarray(np.abs(mixes[:, None] - mixes[None]).sum(axis=-1) / 2)


def wasserstein(mixes: Floats) -> Floats:
    """The distance of all pairs along the numbers of labels, in labels."""
    totals = np.cumsum(mixes, axis=1)
    return np.asarray(np.abs(totals[:, None] - totals[None]).sum(axis=-1))


def hellinger(mixes: Floats) -> Floats:
    """The distance of all pairs: 0 if equal, 1 if disjoint."""
    roots = np.sqrt(mixes)
    return np.asarray(np.sqrt(((roots[:, None] - roots[None]) ** 2).sum(axis=-1) / 2))


ORACLES: Final[dict[str, Distances]] = {
    "Jensen-Shannon": jensen_shannon,
    "Hellinger": hellinger,
    "Wasserstein, labels alike or not": total_variation,
    "Wasserstein, along the numbers of labels": wasserstein,
}


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """All splits but the even one, which has no neighbours."""
    return grid(seeds, data, network, (*DIRICHLET, *PATHOLOGICAL))


def figures(setting: Setting, hub: Hub) -> Figures:
    """Recall by each oracle, rank correlations and calibration by bins, and label presence."""
    federation = Federation.of(setting)
    mixes = federation.mixes
    truth = {name: Oracle(mixes, distances) for name, distances in ORACLES.items()}
    likeness = others(baselines.oracle(mixes))
    found: Figures = {}
    for name, similarity in _similarities(federation, hub):
        order = ranking(similarity)
        recalls = {oracle: each.recall(order, _NEIGHBOURS) for oracle, each in truth.items()}
        found[name] = recalls | _agreement(others(similarity), likeness)
    found["label presence"] = _presence(federation)
    return found


def _similarities(federation: Federation, hub: Hub) -> Iterator[tuple[str, Floats]]:
    training = federation.trained(EPOCHS)
    for procedure, values in (("A", federation.importances), ("B", training.moments)):
        supports = supports_of(federation, values, "10%")
        name = f"{federation.setting.name}-{procedure.lower()}-definitions"
        with hub.space(name, supports, np.shape(values)[1]) as space:
            yield ios(procedure), space.matrix()
        similarities = baselines.of_importance(np.asarray(values))
        for baseline in (baselines.PLAIN_COSINE, baselines.PLAIN_EUCLIDEAN):
            yield f"{procedure}: {baseline}", similarities[baseline]
    yield CKA, baselines.of_training(federation, training)[CKA.removeprefix("B: ")]
    yield FEDBARY, 1 - total_variation(federation.mixes)
    yield baselines.HISTOGRAMS, baselines.oracle(federation.mixes)


def _agreement(rows: Floats, truth: Floats) -> dict[str, float]:
    """Rank correlations of each client's row, and the scatter of pairs about their bin's mean.

    A similarity is calibrated where pairs that are as alike have it alike. So all are divided by
    their range; the error is the mean distance of a pair from the mean of its bin.
    """
    pairs = [(a, b) for a, b in zip(rows, truth, strict=True)]
    scaled = (rows - rows.min()) / (np.ptp(rows) or 1)
    edges = np.quantile(truth, np.linspace(0, 1, BINS + 1)[1:-1])
    bins = np.digitize(truth, edges)
    means = {b: float(scaled[bins == b].mean()) for b in np.unique(bins)}
    error = np.abs(scaled - np.vectorize(means.__getitem__)(bins)).mean()
    return {
        "tau-b": float(np.nanmean([stats.kendalltau(a, b).statistic for a, b in pairs])),
        "Spearman": float(np.nanmean([stats.spearmanr(a, b).statistic for a, b in pairs])),
        "rising bins": float(np.mean(np.diff([*means.values()]) > 0)),
        "error in a bin": float(error),
    }


def _presence(federation: Federation) -> dict[str, float]:
    """The AUC of "this client has this label", by the least share that counts as having it."""
    supports = [*supports_of(federation, federation.importances, "10%").values()]
    rows = importances_of_classes(federation)
    classes = [select_support(row, k=supports[0].k) for row in rows]
    guesses = np.array([[float(shared_count(a, b)) for b in classes] for a in supports])
    pairs = zip(LEAST, _SHARES, strict=True)
    return {name: label_presence(federation.mixes, guesses, share) for name, share in pairs}
