"""Tables 1 and 2, Figures 2 to 4: clusters of clients, and the models that clusters train."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from sklearn.cluster import AffinityPropagation, AgglomerativeClustering
from sklearn.metrics import (
    adjusted_rand_score,
    calinski_harabasz_score,
    davies_bouldin_score,
    silhouette_score,
)

from demo.data import Integers
from demo.planted import CONCEPTS, DRAWN, GROUPS
from studies import baselines
from studies.cells import Figures
from studies.clustered import Personal, ifca, split_by_updates
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.settings import Setting, grid
from studies.tables.definitions import FEDBARY, total_variation
from studies.tables.retrieval import supports_of

__all__ = [
    "ALONE",
    "CFL",
    "CHANCE",
    "CLIENTS",
    "FREE",
    "GLOBAL",
    "GROUPED",
    "IFCA",
    "IID",
    "IOS",
    "KNOWN",
    "LINKED",
    "NAME",
    "PLANTED",
    "PROPAGATED",
    "TRUE",
    "figures",
    "judged",
    "propagated",
    "row",
    "settings",
]

NAME: Final = "clusters"
CLIENTS: Final = 20
PLANTED: Final = ("labels", "noisy labels", *CONCEPTS)
CHANCE: Final = tuple(f"{concept}{DRAWN}" for concept in CONCEPTS)
"""The concepts on clients whose labels are drawn by chance."""
GROUPED: Final = (*PLANTED, *CHANCE)
"""All whose clients have groups."""
IOS: Final = "IOS, K = 10%"
LINKED: Final = "average linkage"
"""At the true number of groups."""
PROPAGATED: Final = "affinity propagation"
"""At a number of its own."""
KNOWN: Final = f"{IOS}, {LINKED}"
FREE: Final = f"{IOS}, number of clusters free"
"""By the service's default."""
GLOBAL: Final = "one global model"
ALONE: Final = "each client alone"
TRUE: Final = "the planted groups"
IFCA: Final = "IFCA"
CFL: Final = "CFL (Sattler et al.)"
_OF_IMAGES: Final = ("rotations", "styles")
_DIRICHLET: Final = ("dirichlet 0.1", "dirichlet 0.3")
IID: Final = f"iid{DRAWN}"
"""The paper's IID: any samples for any client, so that there is nothing to cluster."""
_FEWER: Final = 5
"""Seeds of clients whose labels are drawn by chance."""


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Planted groups, and splits that have none; texts are not rotated."""
    for splits, own in (
        ((*PLANTED, *_DIRICHLET), seeds),
        ((*CHANCE, IID), seeds[:_FEWER]),
    ):
        fitting = [
            split for split in splits if data != "newsgroups" or not split.startswith(_OF_IMAGES)
        ]
        yield from grid(own, data, network, fitting, CLIENTS)


def row(name: str, way: str) -> str:
    """The name of a row: a similarity, and how clusters are made of it."""
    return f"{name}, {way}"


def figures(setting: Setting, hub: Hub) -> Figures:
    """Accuracy, agreement with the planted groups, and quality by labels, of each clustering."""
    federation = Federation.planted(setting)
    personal = Personal(federation)
    count = len(federation.labels)
    found = {
        GLOBAL: {"accuracy": personal.accuracy(np.zeros(count, np.int64))},
        ALONE: {"accuracy": personal.accuracy(np.arange(count))},
    }
    for name, labels in _clusterings(federation, hub):
        found[name] = judged(federation, labels) | {"accuracy": personal.accuracy(labels)}
    if federation.groups.any():
        found[TRUE] = {"accuracy": personal.accuracy(federation.groups)}
    for name, (labels, accuracies) in (
        (IFCA, ifca(federation, GROUPS)),
        (CFL, split_by_updates(federation)),
    ):
        found[name] = judged(federation, labels) | {"accuracy": accuracies[-1]}
    return found


def _clusterings(federation: Federation, hub: Hub) -> Iterator[tuple[str, Integers]]:
    """By the service of index overlaps; by scikit-learn of all that it does not compute."""
    values = federation.importances
    supports = supports_of(federation, values, "10%")
    with hub.space(federation.setting.name, supports, values.shape[1]) as space:
        yield row(IOS, PROPAGATED), space.labels("affinity_propagation")
        yield KNOWN, space.labels("agglomerative", GROUPS)
        yield FREE, space.labels()
    similarities = baselines.of_importance(values)
    for name in (baselines.PLAIN_COSINE, baselines.PLAIN_EUCLIDEAN):
        yield row(name, PROPAGATED), propagated(similarities[name])
        yield row(name, LINKED), _linked(similarities[name])
    histograms = baselines.oracle(federation.mixes)
    yield row(baselines.HISTOGRAMS, PROPAGATED), propagated(histograms)
    yield row(baselines.HISTOGRAMS, LINKED), _linked(histograms)
    overlaps = 1 - total_variation(federation.mixes)
    yield row(FEDBARY, PROPAGATED), propagated(overlaps)
    yield row(FEDBARY, LINKED), _linked(overlaps)


def propagated(similarity: Floats) -> Integers:
    """Clusters by affinity propagation, whose customary preference is the median."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it does not converge, or all are alike
        found = AffinityPropagation(
            affinity="precomputed", damping=0.8, max_iter=1000, random_state=0
        ).fit_predict(similarity)
    return np.maximum(
        np.asarray(found, np.int64), 0
    )  # -1 for all of them where it does not converge


def _linked(similarity: Floats) -> Integers:
    distances = similarity.max() - similarity
    np.fill_diagonal(distances, 0)
    linkage = AgglomerativeClustering(GROUPS, metric="precomputed", linkage="average")
    return np.asarray(linkage.fit_predict((distances + distances.T) / 2), np.int64)


def judged(federation: Federation, labels: Integers) -> dict[str, float]:
    """How many clusters there are, and how well they agree with groups and with labels."""
    clusters = len(np.unique(labels))
    found = {"clusters": float(clusters)}
    if federation.groups.any():
        found["ARI"] = float(adjusted_rand_score(federation.groups, labels))
    mixes = federation.mixes
    if 1 < clusters < len(labels) and np.ptp(mixes, axis=0).any():
        found["silhouette"] = float(silhouette_score(mixes, labels))
        found["Davies-Bouldin"] = float(davies_bouldin_score(mixes, labels))
        found["Calinski-Harabasz"] = float(calinski_harabasz_score(mixes, labels))
    return found
