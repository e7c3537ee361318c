"""Orthonormal bases: unit rows, the first directions of a moment, and stable signs.

All arithmetic is in float64. Directions are columns.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["orthonormal", "top_of_moment", "top_of_rows", "unit_rows", "with_stable_signs"]

Floats = npt.NDArray[np.float64]

_LEAST_ENERGY: Final = 1e-10
"""A direction with less of the top energy counts as noise: squaring rows leaves no more digits."""


def unit_rows(rows: Floats, constant: float) -> Floats:
    """Scale each row to length 1, append a constant, and scale the whole to length 1 again.

    Unit rows bound what one sample can change. The constant lets the fingerprint see the sign of a
    sample, which no subspace can.

    Args:
        rows: shape ``(n, m)``, none of them zero.
        constant: 0 appends nothing.
    """
    # Divided by the largest entry first: the squares of huge or tiny entries leave float64.
    scaled: Floats = rows / np.abs(rows).max(axis=1, keepdims=True)
    scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
    if not constant:
        return scaled
    out = np.empty((rows.shape[0], rows.shape[1] + 1))
    out[:, :-1], out[:, -1] = scaled, constant
    out /= np.sqrt(1.0 + constant**2)
    return out


def top_of_rows(rows: Floats, rank: int) -> tuple[Floats, Floats]:
    """The first eigenvectors of ``rows.T @ rows``, and their eigenvalues, descending.

    Args:
        rows: shape ``(n, m)``.
        rank: the most directions, 1 or more.

    Returns:
        Columns ``(m, r)`` and energies ``(r,)``; r is below ``rank`` where the rows span less.
    """
    if rows.shape[0] >= rows.shape[1]:
        return top_of_moment(rows.T @ rows, rank)
    # The smaller side has the same energies: u = rows.T @ v / sqrt(e).
    vectors, energies = _top(rows @ rows.T, rank)
    return with_stable_signs(orthonormal(rows.T @ (vectors / np.sqrt(energies)))), energies


def top_of_moment(moment: Floats, rank: int) -> tuple[Floats, Floats]:
    """The first eigenvectors of a symmetric matrix with positive eigenvalues, and these."""
    vectors, energies = _top(moment, rank)
    return with_stable_signs(orthonormal(vectors)), energies


def orthonormal(columns: Floats) -> Floats:
    """An orthonormal basis of the same span, nearest to columns that are nearly one."""
    basis, triangle = np.linalg.qr(columns)
    signs: Floats = np.where(np.diag(triangle) < 0, -1.0, 1.0)
    return np.asarray(basis * signs)


def with_stable_signs(columns: Floats) -> Floats:
    """Turn each column so that its largest entry is positive: for stable bytes."""
    at = np.abs(columns).argmax(axis=0)
    return columns * np.where(columns[at, np.arange(columns.shape[1])] < 0, -1.0, 1.0)


def _top(symmetric: Floats, rank: int) -> tuple[Floats, Floats]:
    energies, vectors = np.linalg.eigh(symmetric)
    energies, vectors = energies[::-1][:rank], vectors[:, ::-1][:, :rank]
    kept = int((energies > _LEAST_ENERGY * max(float(energies[0]), 0.0)).sum())
    return vectors[:, :kept], energies[:kept]
