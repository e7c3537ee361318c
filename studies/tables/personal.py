"""Tables 2 and 8, Figures 2 to 4: models that clusters of clients with unlike labels train.

Each client keeps a quarter of its samples, and is tested on these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from demo.data import Integers
from demo.planted import GROUPS
from studies import baselines
from studies.cells import Figures
from studies.clustered import Personal, ifca, split_by_updates
from studies.federations import Federation
from studies.hub import Hub
from studies.settings import DIRICHLET, PATHOLOGICAL, Setting, grid
from studies.tables.clusters import ALONE, CFL, CLIENTS, GLOBAL, IFCA, judged, propagated
from studies.tables.definitions import FEDBARY, total_variation
from studies.tables.retrieval import supports_of

__all__ = ["NAME", "SEEDS", "SIZES", "figures", "ios", "settings"]

NAME: Final = "personal"
SEEDS: Final = 3
"""The paper's number."""
SIZES: Final = ("K*", "15%", "25%")


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """The paper's four splits, with its number of seeds."""
    return grid(seeds[:SEEDS], data, network, (*DIRICHLET, *PATHOLOGICAL), CLIENTS)


def ios(size: str) -> str:
    """The name of a row of index overlaps."""
    return f"IOS, K = {size}"


def figures(setting: Setting, hub: Hub) -> Figures:
    """Accuracy after each round, and quality by labels, of each clustering."""
    federation = Federation.of(setting).tested_by_clients()
    personal = Personal(federation)
    found: Figures = {}
    for name, labels in _clusterings(federation, hub):
        _add(found, federation, name, labels, personal.by_round(labels))
    methods = (ifca(federation, GROUPS), split_by_updates(federation))
    for name, (labels, accuracies) in zip((IFCA, CFL), methods, strict=True):
        _add(found, federation, name, labels, accuracies)
    return found


def _add(
    found: Figures,
    federation: Federation,
    name: str,
    labels: Integers,
    accuracies: Sequence[float],
) -> None:
    found[name] = judged(federation, labels) | {"accuracy": accuracies[-1]}
    by_round = {str(number): each for number, each in enumerate(accuracies, 1)}
    found[f"{name}, by round"] = by_round


def _clusterings(federation: Federation, hub: Hub) -> Iterator[tuple[str, Integers]]:
    """By affinity propagation, as the paper has it: the service's of index overlaps."""
    count, values = len(federation.labels), federation.importances
    yield GLOBAL, np.zeros(count, np.int64)
    yield ALONE, np.arange(count)
    for number, size in enumerate(SIZES):
        supports = supports_of(federation, values, size)
        name = f"{federation.setting.name}-personal-{number}"
        with hub.space(name, supports, values.shape[1]) as space:
            yield ios(size), space.labels("affinity_propagation")
    similarities = baselines.of_importance(values)
    for name in (baselines.PLAIN_COSINE, baselines.PLAIN_EUCLIDEAN):
        yield name, propagated(similarities[name])
    yield baselines.HISTOGRAMS, propagated(baselines.oracle(federation.mixes))
    yield FEDBARY, propagated(1 - total_variation(federation.mixes))
