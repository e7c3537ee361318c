"""Two clusterings side by side: which models stayed together, and where the others went.

Cluster ids last from one clustering of a selection to the next, but not from one selection to
another. So clusters are paired here by the models that they have in common, whatever their ids.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from app.kinship.clustering.records import ClusteringContent
from modelkin.core.clustering.clustering import NOISE, agreement, lasting_ids

__all__ = ["ClusteringComparison", "Flow", "compare"]


@dataclass(frozen=True, slots=True)
class Flow:
    """The models of one old cluster that are in one new cluster.

    Attributes:
        old, new: ids of the clusters; -1 for none.
        models: the number of these models.
        stayed: whether the two clusters are a pair, so that these models did not move.
    """

    old: int
    new: int
    models: int
    stayed: bool


@dataclass(frozen=True, slots=True)
class ClusteringComparison:
    """The differences between a clustering and an older one.

    Attributes:
        common: the number of models in both; ``joined`` counts models in the new one alone,
            ``left`` in the old one alone.
        agreement: the adjusted Rand index over the models of both; None if there are none.
        moved: the number of models in both that are not in the cluster paired with their old one.
        flows: the flows from old to new clusters, the largest first.
    """

    common: int
    joined: int
    left: int
    agreement: float | None
    moved: int
    flows: tuple[Flow, ...]


def compare(new: ClusteringContent, old: ClusteringContent) -> ClusteringComparison:
    """Compare a clustering with an older one.

    Clusters are paired one to one so that as many models as possible stay in their pair. A model
    that is in no cluster both times has stayed.
    """
    before = dict(zip(old.models, old.labels, strict=True))
    both = [row for row, name in enumerate(new.models) if name in before]
    labels = np.array([new.labels[row] for row in both], np.int64)
    past = np.array([before[new.models[row]] for row in both], np.int64)
    pairs = _pairs([new.models[row] for row in both], labels, before)
    counted = Counter(zip(past.tolist(), labels.tolist(), strict=True))
    flows = [Flow(a, b, count, pairs.get(b) == a) for (a, b), count in counted.items()]
    flows.sort(key=lambda flow: (-flow.models, flow.old, flow.new))
    return ClusteringComparison(
        common=len(both),
        joined=len(new.models) - len(both),
        left=len(old.models) - len(both),
        agreement=agreement(labels, past) if both else None,
        moved=sum(flow.models for flow in flows if not flow.stayed),
        flows=tuple(flows),
    )


def _pairs(names: list[str], labels: np.ndarray, before: dict[str, int]) -> dict[int, int]:
    """The old cluster that each new one is paired with; none goes with none."""
    ids, own = np.unique(labels[labels != NOISE], return_inverse=True)
    numbered = np.full(labels.size, NOISE, np.int64)
    numbered[labels != NOISE] = own
    lasting = lasting_ids(names, numbered, before)
    found = zip(ids.tolist(), lasting.tolist(), strict=True)
    return {NOISE: NOISE} | {new: old for new, old in found if old != NOISE}
