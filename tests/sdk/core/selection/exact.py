"""Exact masses of an importance, in rationals: what histograms of float bits must agree with."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from modelkin.core.support import Support

__all__ = ["coverage_of", "mass"]


def mass(values: Any) -> Fraction:
    """The exact sum of float32 values."""
    return sum((Fraction(float(value)) for value in np.asarray(values, np.float32)), Fraction(0))


def coverage_of(importance: Any, support: Support) -> float:
    """The share of an importance's mass that lies on a support, the C(K) of Algorithm 1."""
    values = np.asarray(importance, np.float32)
    return float(mass(values[support.indices]) / mass(values))
