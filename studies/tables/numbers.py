"""The number of groups left free: what each algorithm of the service finds of planted clients.

Clients keep no samples for testing: nothing is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from sklearn.metrics import adjusted_rand_score

from demo.data import Integers
from demo.planted import CONCEPTS, GROUPS
from modelkin.types.vocabulary import ClusteringAlgorithm
from studies.cells import Figures
from studies.federations import Federation
from studies.hub import Hub, HubSpace
from studies.settings import NETWORKS, Setting, grid
from studies.tables.clusters import IOS
from studies.tables.retrieval import supports_of
from studies.tables.samples import DATA_SPACES, subspaces_of

__all__ = ["ALGORITHMS", "CLIENTS", "KNOWN", "NAME", "SPLITS", "agreement", "figures", "settings"]

NAME: Final = "numbers"
CLIENTS: Final = 24
SPLITS: Final = ("iid", "noisy labels", *CONCEPTS)
"""The first has no groups: one cluster is right."""
ALGORITHMS: Final[tuple[ClusteringAlgorithm, ...]] = (
    *("affinity_propagation", "leiden", "agglomerative", "hdbscan"),
)
KNOWN: Final = "number known"
_SEEDS: Final = 5


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Three networks, since what stands out in S is the network's."""
    del network
    for each in NETWORKS:
        yield from grid(seeds[:_SEEDS], data, each, SPLITS, CLIENTS)


def figures(setting: Setting, hub: Hub) -> Figures:
    """ARI by supports and by data subspaces, of each algorithm, and at the known number."""
    federation = Federation.planted(setting, kept=0.0)
    m = federation.importances.shape[1]
    supports = supports_of(federation, federation.importances, "10%")
    with hub.space(f"{setting.name}-numbers", supports, m) as space:
        found = {IOS: _found(federation, space)}
    features = federation.samples[0][0].numel()
    with hub.data_space(f"{setting.name}-data", subspaces_of(federation), features) as space:
        found[DATA_SPACES] = _found(federation, space)
    return found


def _found(federation: Federation, space: HubSpace) -> dict[str, float]:
    groups = federation.groups
    found: dict[str, float] = {name: agreement(groups, space.labels(name)) for name in ALGORITHMS}
    if groups.any():
        found[KNOWN] = agreement(groups, space.labels("agglomerative", GROUPS))
    return found


def agreement(groups: Integers, labels: Integers) -> float:
    """ARI; a client in no cluster counts as one alone."""
    alone = np.where(labels < 0, labels.max() + 1 + np.arange(len(labels)), labels)
    return float(adjusted_rand_score(groups, alone))
