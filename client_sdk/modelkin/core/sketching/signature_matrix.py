"""The similarity of all pairs of many signatures, estimated from all their values.

``modelkin.core.packed.matrix`` compares supports exactly. This module is for models that sent only
signatures, and for more models than can be compared bit by bit: 10,000 signatures take a second.
``modelkin.core.sketching.signature.jaccard_estimates`` compares one signature with many.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.core.sketching.schemes import MAX_NUM_PERM, ValueArray
from modelkin.errors import InvalidSignature, SpaceMismatch

__all__ = ["TILE_SIZE", "estimated_matrix", "match_table"]

TILE_SIZE = 256
"""Signatures a side of a tile: small beside the matrix, large beside the cost of a call."""


def match_table(rows: ValueArray, columns: ValueArray) -> npt.NDArray[np.int16]:
    """Count the equal values of each pair of a row and a column: a tile of the matrix of all pairs.

    Args:
        rows: signatures of one scheme, h and seed, shape ``(a, h)``, h up to 4,096.
        columns: more of them, shape ``(b, h)``.

    Returns:
        Shape ``(a, b)``, each 0 to h; divided by h, an estimate of the Jaccard similarity.

    Raises:
        InvalidSignature: not two-dimensional arrays of 1 to 4,096 values a row.
        SpaceMismatch: they are of different h or dtype.
    """
    for values in (rows, columns):
        _check(values)
    if rows.shape[1] != columns.shape[1] or rows.dtype != columns.dtype:
        raise SpaceMismatch(
            f"signatures of {rows.shape[1]} {rows.dtype} and {columns.shape[1]} {columns.dtype} "
            f"values cannot be compared"
        )
    matches: npt.NDArray[np.int16] = kernels().match_table(rows, columns)
    return matches


def estimated_matrix(values: ValueArray) -> npt.NDArray[np.float32]:
    """The estimated similarity ``S = 2J / (1 + J)`` of all pairs of signatures.

    The standard error of each is ``modelkin.core.estimators.standard_error``, 0.026 at S = 0.7 and
    h = 256. The rounding of float32 is far below it, at half the memory of float64.

    Args:
        values: signatures of one scheme, h and seed, shape ``(n, h)``, h up to 4,096.

    Returns:
        Shape ``(n, n)``, symmetric, 1 on the diagonal: 400 MB where n is 10,000.

    Raises:
        InvalidSignature: not a two-dimensional array of 1 to 4,096 values a row.
    """
    _check(values)
    n, h = values.shape
    jaccards = np.arange(h + 1) / h
    similarities = (2 * jaccards / (1 + jaccards)).astype(np.float32)
    matrix = np.empty((n, n), np.float32)
    for i in range(0, n, TILE_SIZE):
        for j in range(0, i + 1, TILE_SIZE):
            tile = similarities[match_table(values[i : i + TILE_SIZE], values[j : j + TILE_SIZE])]
            matrix[i : i + TILE_SIZE, j : j + TILE_SIZE] = tile
            matrix[j : j + TILE_SIZE, i : i + TILE_SIZE] = tile.T
    return matrix


def _check(values: ValueArray) -> None:
    if values.ndim != 2 or not 1 <= values.shape[1] <= MAX_NUM_PERM:
        raise InvalidSignature(
            f"signatures are an array of shape (n, h) with h from 1 to {MAX_NUM_PERM}, this has "
            f"shape {values.shape}",
            field="values",
        )
