"""Personal models on a graph: each client averages over its neighbours, by FedAvg or Per-FedAvg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from studies import baselines
from studies.cells import Figures
from studies.clustered import on_graph
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import ranking
from studies.settings import Setting, grid
from studies.tables.clusters import CLIENTS, GLOBAL, IOS
from studies.tables.retrieval import supports_of

__all__ = [
    "COLUMNS",
    "NAME",
    "NEIGHBOURS",
    "PAIRS",
    "figures",
    "mixing",
    "settings",
]

NAME: Final = "graphs"
NEIGHBOURS: Final = 4
_SEEDS: Final = 3
_METHODS: Final = {"FedAvg": False, "Per-FedAvg": True}
COLUMNS: Final = ("accuracy", "after a step")
PAIRS: Final = (
    (f"Per-FedAvg, {IOS}", f"FedAvg, {IOS}"),
    (f"Per-FedAvg, {IOS}", f"Per-FedAvg, {baselines.PLAIN_COSINE}"),
    (f"Per-FedAvg, {IOS}", f"Per-FedAvg, {GLOBAL}"),
)
"""Rows whose difference is shown."""
_SPLITS: Final = ("permuted labels", "rotations", "dirichlet 0.1")


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Two concepts, and a Dirichlet split, whose clients have no groups."""
    return grid(seeds[:_SEEDS], data, network, _SPLITS, CLIENTS)


def figures(setting: Setting, hub: Hub) -> Figures:
    """Accuracy with each method on each graph, before and after a step on a client's samples."""
    federation = Federation.planted(setting)
    found: Figures = {}
    for graph, shares in _graphs(federation, hub):
        for method, meta in _METHODS.items():
            accuracies = on_graph(federation, shares, meta=meta)
            found[f"{method}, {graph}"] = dict(zip(COLUMNS, accuracies, strict=True))
    return found


def _graphs(federation: Federation, hub: Hub) -> Iterator[tuple[str, Floats]]:
    count, values = len(federation.labels), federation.importances
    yield GLOBAL, np.full((count, count), 1 / count)
    supports = supports_of(federation, values, "10%")
    with hub.space(f"{federation.setting.name}-graph", supports, values.shape[1]) as space:
        yield IOS, mixing(space.matrix(), NEIGHBOURS)
    cosine = baselines.PLAIN_COSINE
    yield cosine, mixing(baselines.of_importance(values)[cosine], NEIGHBOURS)


def mixing(similarity: Floats, k: int) -> Floats:
    """The share of each client in the average of each, in proportion to S of it and its k nearest.

    Args:
        similarity: of all pairs, ``(N, N)``, 1 of a client with itself.
        k: neighbours of each.

    Returns:
        ``(N, N)``; rows sum to 1.
    """
    rows = np.arange(len(similarity))[:, None]
    nearest = ranking(similarity)[:, :k]
    kept = np.eye(len(similarity))
    kept[rows, nearest + (nearest >= rows)] = 1  # the ranking is of the others
    shares = kept * similarity
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
