"""MHCnuggets: 299 small LSTMs, 75 of which were made from another one that the package names.

Tables of the package name the parent of 60 models; 15 more, ``X_BA_to_HLAp``, were made from
``X_BA``. Lists of the package give each model's class of MHC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sklearn.metrics import adjusted_rand_score, roc_auc_score

from modelkin.types.vocabulary import ClusteringAlgorithm
from studies.cells import Figures
from studies.federations import Floats
from studies.hub import Hub
from studies.real.checkpoints import Checkpoints, saved
from studies.real.kinship import among, between, cosines, distances, nearest, nearest_shared
from studies.real.packages import Packages
from studies.real.readers.keras import read_keras

__all__ = ["ALGORITHMS", "NAME", "Pairs", "figures"]

NAME: Final = "mhcnuggets"
ALGORITHMS: Final[tuple[ClusteringAlgorithm, ...]] = (
    "affinity_propagation",
    "leiden",
    "hdbscan",
)

_SHARES: Final = (0.05, 0.1)
_MODELS: Final = "mhcnuggets/saves/production/"
_DATA: Final = "mhcnuggets/data/production/"
_LISTS: Final = {"I": "mhcI", "II": "mhcII"}
_BASE: Final = "_BA"
_TUNED: Final = "_BA_to_HLAp"

Pairs = list[tuple[int, int]]
"""Rows of a model and of the one that it was made from."""


def figures(packages: Packages, hub: Hub) -> Figures:
    """Parents among 299 models by indices and by values, and clusters beside classes."""
    files = packages.members("mhcnuggets", "2.4.1", _is_wanted)
    models = {
        path.removeprefix(_MODELS).removesuffix(".h5"): read_keras(data)
        for path, data in files.items()
        if path.endswith(".h5")
    }
    names = list(models)
    tuning, further = _parents(names, files)
    classes = _classes(names, files)
    found: Figures = {}
    with saved(models) as checkpoints:
        for share in _SHARES:
            similarity, clusters = _by_indices(checkpoints, hub, share, classes)
            title = f"K = {share:.0%}"
            found[title] = _judged(similarity, tuning, further, classes)
            found |= {f"{title}, {name}": row for name, row in clusters.items()}
        vectors = checkpoints.vectors()
    values = {"cosine of weights": cosines(vectors), "Euclidean of weights": distances(vectors)}
    found |= {name: _judged(by, tuning, further, classes) for name, by in values.items()}
    return found


def _is_wanted(name: str) -> bool:
    tables = ("mhc_tuning.csv", "alleles_with_trained_models.txt")
    return name.startswith(_MODELS) or (name.startswith(_DATA) and name.endswith(tables))


def _parents(names: Sequence[str], files: Mapping[str, bytes]) -> tuple[Pairs, Pairs]:
    """The pairs of the package's tables, and those of models' names."""
    rows = {name: row for row, name in enumerate(names)}
    lines = [
        line.split(",")
        for kind in _LISTS.values()
        for line in files[f"{_DATA}{kind}/mhc_tuning.csv"].decode().split()
    ]
    tuning = dict.fromkeys((rows[line[0] + _BASE], rows[line[1] + _BASE]) for line in lines)
    further = [
        (row, rows[name.removesuffix(_TUNED) + _BASE])
        for name, row in rows.items()
        if name.endswith(_TUNED)
    ]
    return list(tuning), further


def _classes(names: Sequence[str], files: Mapping[str, bytes]) -> list[str]:
    known = {
        allele: number
        for number, kind in _LISTS.items()
        for allele in files[f"{_DATA}{kind}/alleles_with_trained_models.txt"].decode().split()
    }
    return [known[name.removesuffix(_TUNED).removesuffix(_BASE)] for name in names]


def _by_indices(
    checkpoints: Checkpoints, hub: Hub, share: float, classes: Sequence[str]
) -> tuple[Floats, Figures]:
    """S of all pairs, and the clusters of each algorithm."""
    clusters: Figures = {}
    with checkpoints.pushed(hub, share) as space:
        similarity = space.matrix()
        for algorithm in (*ALGORITHMS, "agglomerative"):
            labels = space.labels(algorithm)
            ari = adjusted_rand_score(classes, labels)
            clusters[f"clusters by {algorithm}"] = {"clusters": len({*labels}), "ARI": ari}
    return similarity, clusters


def _judged(
    similarity: Floats, tuning: Pairs, further: Pairs, classes: Sequence[str]
) -> dict[str, float]:
    """How often a parent is nearest, and how well a similarity separates classes."""
    same = between(similarity, among(classes, related=True))
    other = between(similarity, among(classes, related=False))
    truth = [1] * same.size + [0] * other.size
    return {
        "models": len(classes),
        "nearest of 60": nearest(similarity, tuning),
        "ties divided": nearest_shared(similarity, tuning),
        "nearest of 15": nearest(similarity, further),
        "divided": nearest_shared(similarity, further),
        "AUC of class": float(roc_auc_score(truth, [*same, *other])),
    }
