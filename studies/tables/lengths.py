"""Table 10: accuracy of clusters' models by local epochs, before importance is taken and after.

Importance is taken over the local epochs, as the paper has it, and K is K*; clusters then train
with as many epochs a round. Beside them is one global model with the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from studies.cells import Figures
from studies.clustered import Personal
from studies.federations import Federation
from studies.hub import Hub
from studies.settings import DIRICHLET, PATHOLOGICAL, Setting, grid
from studies.tables.clusters import CLIENTS, GLOBAL
from studies.tables.epochs import EPOCHS
from studies.tables.personal import ios
from studies.tables.retrieval import supports_of

__all__ = ["NAME", "ROUNDS", "figures", "settings"]

NAME: Final = "lengths"
ROUNDS: Final = 5
_SEEDS: Final = 3


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """The paper's four splits, with its number of seeds."""
    return grid(seeds[:_SEEDS], data, network, (*DIRICHLET, *PATHOLOGICAL), CLIENTS)


def figures(setting: Setting, hub: Hub) -> Figures:
    """Accuracy after five rounds, by epochs."""
    federation = Federation.of(setting).tested_by_clients()
    one = np.zeros(len(federation.labels), np.int64)
    found: Figures = {ios("K*"): {}, "clusters": {}, GLOBAL: {}}
    for count in EPOCHS:
        supports = supports_of(federation, federation.trained(count).moments, "K*")
        m = federation.importances.shape[1]
        with hub.space(f"{setting.name}-lengths-{count}", supports, m) as space:
            labels = space.labels("affinity_propagation")
        personal, column = Personal(federation, count, ROUNDS), f"{count} epochs"
        found[ios("K*")][column] = personal.accuracy(labels)
        found[GLOBAL][column] = personal.accuracy(one)
        found["clusters"][column] = len(np.unique(labels))
    return found
