"""HDBSCAN (Campello, Moulavi and Sander 2013), by scikit-learn: clusters are dense regions.

Models outside all dense regions are in no cluster. The minimum cluster size is a parameter, or
several sizes are tried and the selector keeps the best; models in no cluster count against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.infra.extras import DISTRIBUTION
from app.jobs.service import Progress
from app.kinship.clustering.algorithms.partition_selector import PartitionSelector
from modelkin.errors import MissingExtra

__all__ = ["cluster"]

Floats = npt.NDArray[np.float64]

STAGE: Final = "hdbscan"
_SIZES = (2, 3, 5, 8, 13, 21, 34, 55, 89)
_MAX_SIZE_DIVISOR = 4
"""The largest size that is tried is this fraction of all models."""


def cluster(
    distances: Floats,
    options: Mapping[str, Any],
    selector: PartitionSelector,
    progress: Progress,
) -> None:
    """Pass the partitions of one or more minimum sizes to the selector.

    Args:
        distances: the distances of all pairs, ``(n, n)``, with n at least 3.
        options: the parameters ``min_cluster_size`` and ``min_samples``.
    """
    n = len(distances)
    if "min_cluster_size" in options:
        size = options["min_cluster_size"]
        progress(0, 1, STAGE)
        selector.consider(_labels(distances, size, options.get("min_samples", size)))
        return
    sizes = [size for size in _SIZES if size <= max(_SIZES[1], n // _MAX_SIZE_DIVISOR)]
    # Other regions are dense once the common part of all models is removed.
    centred = selector.centred
    measures = [distances] if centred is None else [distances, centred.matrix()]
    for done, (measure, size) in enumerate(product(measures, sizes)):
        progress(done, len(measures) * len(sizes), STAGE)
        # A high min_samples keeps noise out, a value of 1 finds the most clusters.
        for samples in {options.get("min_samples", size), options.get("min_samples", 1)}:
            labels = _labels(measure, size, samples)
            chosen = {} if "min_samples" in options else {"min_samples": samples}
            selector.consider(labels, min_cluster_size=size, **chosen)


def _labels(distances: Floats, size: int, samples: int) -> npt.NDArray[np.int64]:
    try:
        from sklearn.cluster import HDBSCAN
    except ImportError:
        raise MissingExtra("scikit-learn", "clustering", of=DISTRIBUTION) from None
    found = HDBSCAN(
        min_cluster_size=size, min_samples=samples, metric="precomputed", copy=True
    ).fit(distances)
    labels: npt.NDArray[np.int64] = np.asarray(found.labels_, np.int64)
    return labels
