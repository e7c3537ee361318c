"""Analyze Gauss: Gaussian noise on a second moment, calibrated by the analytic mechanism.

Sources: Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss" (STOC 2014); of what noise adds to
eigenvalues, Benaych-Georges and Nadakuditi, "The eigenvalues and eigenvectors of finite, low rank
perturbations of large random matrices" (Advances in Mathematics, 2011).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "noisy_moment",
    "without_noise",
]

Floats = npt.NDArray[np.float64]

_LEAST_SHARE: Final = 0.01
"""The share that counts of the energy of a direction that may be noise, where there is no other."""


def noisy_moment(rows: Floats, sigma: float, rng: np.random.Generator) -> Floats:
    """``rows.T @ rows`` with Gaussian noise, symmetric and alike in all directions.

    One row of length 1 more or less changes the sum by 1 in Frobenius norm. In that norm an entry
    off the diagonal counts twice, so it needs noise of half the variance. Analyze Gauss gives all
    entries the same, for the norm of the upper triangle: the same privacy by more noise.

    Args:
        rows: shape ``(n, m)``, of length 1 each; n may be 0.
        sigma: standard deviation of the noise along any direction, ``u @ noise @ u``.
        rng: draws it; a seed that others know undoes it.
    """
    size = rows.shape[1]
    drawn = rng.normal(0.0, sigma, (size, size))
    noise = np.triu(drawn, 1) / math.sqrt(2.0)
    moment: Floats = rows.T @ rows + noise + noise.T + np.diag(np.diag(drawn))
    return moment


def without_noise(energies: Floats, sigma: float, size: int) -> Floats:
    """The energies that the samples have along the first eigenvectors of a noisy moment.

    Noise of size m alone has eigenvalues up to ``sigma sqrt(2 m)``. An eigenvalue above was a
    smaller one, and its eigenvector is turned away from the samples' own. What is left counts, so
    that clients are not compared by their noise. This reads nothing but the noisy moment, so it
    takes no privacy.

    Args:
        energies: eigenvalues above 0, descending; shape ``(d,)``.
        sigma: the standard deviation of the noise along any direction, above 0.
        size: m.

    Returns:
        The energies of the directions that stand out, or a hundredth of the first where none does.
    """
    variance = size * sigma**2 / 2.0
    seen = energies[energies > 2.0 * math.sqrt(variance)]
    if not seen.size:
        return energies[:1] * _LEAST_SHARE
    own = (seen + np.sqrt(seen**2 - 4.0 * variance)) / 2.0
    return np.maximum(own - variance / own, seen * _LEAST_SHARE)
