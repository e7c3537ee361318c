"""Principal angles between subspaces, for the report of a pair.

Source: Björck and Golub, "Numerical methods for computing angles between linear subspaces" (1973):
cosines for large angles and sines for small ones, whose cosines have lost the digits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelkin.core.subspaces.affinity import check_comparable
from modelkin.core.subspaces.basis import orthonormal
from modelkin.core.subspaces.subspace import Subspace

__all__ = ["angles_between", "principal_angles"]

Floats = npt.NDArray[np.float64]


def principal_angles(a: Subspace, b: Subspace) -> dict[int | None, Floats]:
    """The principal angles of each block that both have, in radians, ascending.

    Returns:
        The angles by label, None for all samples; as many as the smaller block has columns.

    Raises:
        SpaceMismatch: another m, constant or weighting.
    """
    check_comparable(a, b)
    other = {block.label: block.columns for block in b.blocks}
    return {
        block.label: angles_between(block.columns.T, other[block.label].T)
        for block in a.blocks
        if block.label in other
    }


def angles_between(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """The principal angles between the spans of two sets of columns, in radians, ascending.

    Args:
        first: linearly independent columns, shape ``(m, d)``; they need not be orthonormal.
        second: linearly independent columns, shape ``(m, e)``.

    Returns:
        Shape ``(min(d, e),)``.
    """
    u, v = (orthonormal(np.asarray(each, np.float64)) for each in (first, second))
    if u.shape[1] < v.shape[1]:
        u, v = v, u
    products = u.T @ v
    cosines = np.linalg.svd(products, compute_uv=False)
    sines = np.linalg.svd(v - u @ products, compute_uv=False)[::-1]
    small = cosines**2 >= 0.5
    angles: Floats = np.where(
        small, np.arcsin(np.clip(sines, 0.0, 1.0)), np.arccos(np.clip(cosines, 0.0, 1.0))
    )
    return angles
