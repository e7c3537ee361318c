"""The distances 1 − S of all pairs of many models, a block at a time: from a matrix or estimated.

Quality, exemplars and nearest neighbours are computed from these blocks, so they work on a matrix
in memory and on more signatures than a matrix could hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from modelkin.core.estimators import standard_error
from modelkin.core.sketching.schemes import ValueArray
from modelkin.core.sketching.signature_matrix import match_table

__all__ = ["Distances", "MatrixDistances", "SignatureDistances", "blocks"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_BLOCK_SIZE = 1 << 21
"""How many distances are in one block: 16 MB, and half a second from signatures."""
_USUAL_VALUES = 256
"""The values of a signature, by default; the distances of longer ones have smaller blocks."""


class Distances(Protocol):
    """1 − S of all pairs of n models."""

    @property
    def cost(self) -> int:
        """The cost of a distance, 1 or more; the larger it is, the fewer are computed at a time."""

    def __len__(self) -> int:
        """n."""

    def block(self, rows: Rows, columns: Rows | None = None) -> Floats:
        """The distances of some models to some others, or to all of them.

        Args:
            rows: shape ``(r,)``.
            columns: shape ``(c,)``; all by default.

        Returns:
            Shape ``(r, c)``, each 0 to 1, 0 of a model to itself.
        """


class MatrixDistances:
    """The distances of a matrix of similarities.

    Args:
        similarity: S, shape ``(n, n)``, symmetric, 1 on the diagonal.
    """

    cost = 1

    def __init__(self, similarity: Floats) -> None:
        self._similarity = similarity

    def __len__(self) -> int:
        return len(self._similarity)

    def block(self, rows: Rows, columns: Rows | None = None) -> Floats:
        """See :class:`Distances`."""
        found = self._similarity[rows] if columns is None else self._similarity[rows][:, columns]
        return np.clip(1.0 - found, 0.0, 1.0)

    def matrix(self) -> Floats:
        """All distances, shape ``(n, n)``."""
        distances: Floats = np.clip(1.0 - self._similarity, 0.0, 1.0)
        np.fill_diagonal(distances, 0.0)
        return distances


class SignatureDistances:
    """Distances estimated from all values of signatures, computed at each call.

    Args:
        values: the values of signatures of one scheme, h and seed, shape ``(n, h)``.
        share: the share of the models' indices that lies in constants, below 1: taken as held by
            all alike, and left out.

    Attributes:
        values: the argument ``values``.
        of_matches: the distance by how many values agree, shape ``(h + 1,)``.
    """

    def __init__(self, values: ValueArray, share: float = 0.0) -> None:
        self.values = values
        self._share = share
        jaccard = np.arange(values.shape[1] + 1) / values.shape[1]
        self.of_matches: Floats = 1.0 - 2.0 * jaccard / (1.0 + jaccard)
        if share:
            self.of_matches = np.minimum(1.0, self.of_matches / (1.0 - share))

    @property
    def cost(self) -> int:
        """See :class:`Distances`."""
        return max(1, int(self.values.shape[1]) // _USUAL_VALUES)

    def __len__(self) -> int:
        return len(self.values)

    def block(self, rows: Rows, columns: Rows | None = None) -> Floats:
        """See :class:`Distances`."""
        others = self.values if columns is None else self.values[columns]
        return self.of_matches[match_table(self.values[rows], others)]

    def error(self, distance: float) -> float:
        """The standard error of an estimated distance."""
        similarity = 1.0 - distance * (1.0 - self._share)
        error = standard_error(similarity / (2.0 - similarity), self.values.shape[1])
        return error / (1.0 - self._share)


def blocks(
    distances: Distances, rows: Rows, stop: Callable[[], bool] | None = None
) -> Iterator[tuple[Rows, Floats]]:
    """Yield rows with their distances to all models, block by block, to bound the memory.

    Args:
        distances: 1 - S of all pairs of models.
        rows: the models to yield; None for all.
        stop: asked before each block; once it is true, no more blocks follow.
    """
    step = max(1, _BLOCK_SIZE // (max(1, len(distances)) * distances.cost))
    for at in range(0, rows.size, step):
        if stop is not None and stop():
            return
        some = rows[at : at + step]
        yield some, distances.block(some)
