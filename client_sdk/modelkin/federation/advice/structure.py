"""``Structure``: how far apart clients are, which groups stand out, and what each client adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.linkage import groups
from modelkin.core.layout import Layout
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.chance import expected_matrix, kappas, tensor_sizes
from modelkin.core.similarity.matrix import matrix
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch
from modelkin.federation.additions import cover, holders

__all__ = ["FEWEST", "Structure", "structure_of"]

Floats = npt.NDArray[np.float64]

FEWEST = 3
"""The fewest clients that can have groups."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What supports show of a federation.

    Attributes:
        clients: how many there are.
        kappa: the mean similarity of two clients beyond chance: 0 is chance, 1 equal supports.
        within: the same of two clients of one group; None without groups.
        between: the same of two clients of different groups; None without groups.
        silhouette: of the groups; 0 without.
        labels: the group of each client, from 0 on, the largest first.
        covers: the share of its indices that each client adds to the others, over the median of
            all; 0 for a client whose support is empty.
        by_tensor: whether chance was computed by tensor, and not for the model as a whole.
    """

    clients: int
    kappa: float
    within: float | None
    between: float | None
    silhouette: float
    labels: tuple[int, ...]
    covers: tuple[float, ...]
    by_tensor: bool

    @property
    def groups(self) -> int:
        """How many groups there are; 1 where all clients are alike."""
        return 1 + max(self.labels)


def structure_of(supports: Sequence[Support], layout: Layout | None = None) -> Structure:
    """The structure of a federation.

    Args:
        supports: one a client, of importance at common weights.
        layout: the tensors, by which chance is computed; None where they are not known.

    Raises:
        InvalidParameter: there are fewer than three clients.
        SpaceMismatch: supports are of different numbers of parameters, or not of the layout's.
    """
    if len(supports) < FEWEST:
        raise InvalidParameter(
            f"groups need {FEWEST} clients or more, not {len(supports)}", field="supports"
        )
    similarity = matrix([PackedSupport.pack(support) for support in supports])
    beyond = _beyond_chance(similarity, supports, layout)
    labels, silhouette = groups(similarity)
    pairs = ~np.eye(len(supports), dtype=bool)
    together = labels[:, None] == labels[None, :]
    added = np.array([each or 0.0 for each in cover(holders(supports))])
    return Structure(
        clients=len(supports),
        kappa=float(beyond[pairs].mean()),
        within=_mean(beyond[together & pairs]) if silhouette is not None else None,
        between=_mean(beyond[~together]) if silhouette is not None else None,
        silhouette=silhouette or 0.0,
        labels=tuple(labels.tolist()),
        covers=tuple((added / (np.median(added) or 1.0)).tolist()),
        by_tensor=layout is not None,
    )


def _beyond_chance(
    similarity: Floats, supports: Sequence[Support], layout: Layout | None
) -> Floats:
    """Kappa of all pairs; 0 where chance alone gives S = 1."""
    parameters = supports[0].num_parameters
    if layout is None:
        sizes = np.array([parameters], np.float64)
        counts = np.array([[support.k] for support in supports], np.int64)
    else:
        sizes = tensor_sizes(layout)
        if layout.num_parameters != parameters:
            raise SpaceMismatch(
                f"the layout has {layout.num_parameters:,} parameters, and supports {parameters:,}"
            )
        counts = np.array([layout.counts(support.indices) for support in supports])
    found: Floats = np.nan_to_num(kappas(similarity, expected_matrix(counts, sizes)))
    return found


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None
