"""Ordered supports for tests, and their similarities by ranks in plain numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from modelkin import Support, select_support
from tests.support.orders.reference import ordered_cosine

__all__ = ["importances", "ordered_supports", "true_order"]

Floats = npt.NDArray[np.float64]


def importances(seed: int, m: int, n: int) -> dict[str, npt.NDArray[np.float32]]:
    """``n`` importances named m000, m001, ...: a base, and others with more and more noise."""
    rng = np.random.default_rng(seed)
    base = rng.random(m) ** 8
    noise = np.linspace(0.02, 3.0, n - 1)
    rows = [base, *(base * np.exp(rng.normal(0, scale, m)) for scale in noise)]
    return {f"m{number:03d}": row.astype(np.float32) for number, row in enumerate(rows)}


def ordered_supports(rows: Mapping[str, npt.NDArray[np.float32]], k: int) -> dict[str, Support]:
    """The ordered support of K indices of each importance."""
    return {name: select_support(row, k=k, ordered=True) for name, row in rows.items()}


def true_order(rows: Sequence[npt.NDArray[np.float32]], k: int) -> Floats:
    """The cosines of all pairs of importances, of which only ranks up to K count."""
    ranked = [np.argsort(-row, kind="stable")[:k] for row in rows]
    return ordered_cosine(ranked, ranked, rows[0].size)
