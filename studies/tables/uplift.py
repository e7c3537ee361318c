"""Table 4's true uplift: what a client gains that starts from the model of a donor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from scipy import stats

from demo.cohort import Cohort, Weights, repeat
from demo.data import CLASSES
from studies import baselines
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import others
from studies.settings import Setting, grid
from studies.tables.retrieval import ios, supports_of

__all__ = ["ALONE", "BEST", "NAME", "RANDOM", "figures", "settings"]

NAME: Final = "uplift"
RANDOM: Final = "a random donor"
ALONE: Final = "no donor"
BEST: Final = "the best donor, in hindsight"
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
    uplifts = _uplifts(federation)
    alone = _accuracies(federation, _trained(federation, federation.start, _EPOCHS + _OWN))
    gains = uplifts - alone[:, None]
    found: Figures = {
        ALONE: {"accuracy": float(alone.mean())},
        RANDOM: {"accuracy": float(others(uplifts).mean()), "gain": float(others(gains).mean())},
        BEST: {
            "accuracy": float(others(uplifts).max(axis=1).mean()),
            "gain": float(others(gains).max(axis=1).mean()),
        },
    }
    for name, similarity in _rankings(federation, hub):
        first = np.argmax(similarity - 1e9 * np.eye(len(similarity)), axis=1)
        at = np.arange(len(first)), first
        pairs = zip(others(similarity), others(gains), strict=True)
        found[name] = {
            "accuracy": float(uplifts[at].mean()),
            "gain": float(gains[at].mean()),
            "tau": float(np.nanmean([stats.kendalltau(a, b).statistic for a, b in pairs])),
        }
    return found


def _rankings(federation: Federation, hub: Hub) -> Iterator[tuple[str, Floats]]:
    values = federation.importances
    supports = supports_of(federation, values, "10%")
    with hub.space(f"{federation.setting.name}-uplift", supports, values.shape[1]) as space:
        yield ios("A"), space.matrix()
    similarities = baselines.of_importance(values)
    for name in (baselines.PLAIN_COSINE, f"{baselines.PLAIN_EUCLIDEAN}^1/2"):
        yield f"A: {name}", similarities[name]
    yield baselines.HISTOGRAMS, baselines.oracle(federation.mixes)


def _uplifts(federation: Federation) -> Floats:
    """The accuracy of each client (row) that starts from each donor (column), ``(N, N)``."""
    donors = _trained(federation, federation.start, _EPOCHS)
    count = len(federation.labels)
    columns = []
    for donor in range(count):
        start = {name: values[donor : donor + 1] for name, values in donors.items()}
        weights = _trained(federation, repeat(start, count), _OWN)
        columns.append(_accuracies(federation, weights))
    return np.stack(columns, axis=1)


def _trained(federation: Federation, weights: Weights, epochs: int) -> Weights:
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    generator = torch.Generator().manual_seed(federation.setting.seed)
    cohort.train(weights, epochs, generator)
    return weights


@torch.no_grad()
def _accuracies(federation: Federation, weights: Weights) -> Floats:
    """The accuracy of each client by class on test samples, weighed by its labels, ``(N,)``."""
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    labels = federation.test_labels
    right = (cohort.outputs(weights, federation.test_samples).argmax(-1) == labels).double()
    by_class = torch.stack([right[:, labels[0] == c].mean(dim=1) for c in range(CLASSES)], dim=1)
    return np.asarray((by_class.numpy() * federation.mixes).sum(axis=1), np.float64)
