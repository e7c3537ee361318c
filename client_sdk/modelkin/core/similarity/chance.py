"""Chance: the overlap of two supports drawn at random with as many indices in each tensor.

Importance differs between tensors by orders of magnitude, so two models that share nothing take
their indices from the same tensors and overlap. ``kappa`` is the similarity beyond that, as
Cohen's kappa is agreement beyond chance: 0 at chance, 1 for equal supports, negative below chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from modelkin.core.layout import Layout

__all__ = [
    "expected_matrix",
    "expected_of_pairs",
    "expected_similarities",
    "kappa",
    "kappas",
    "tensor_sizes",
]

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.integer]
Report = Callable[[int, int], None]

_VALUES_AT_A_TIME = 1 << 22


def tensor_sizes(layout: Layout) -> Floats:
    """n_t, the parameters of each tensor, shape ``(tensors,)``."""
    return np.array([tensor.size for tensor in layout.tensors], np.float64)


def expected_similarities(ours: Counts, theirs: Counts | Sequence[Counts], sizes: Floats) -> Floats:
    """``S0 = 2 sum_t a_t b_t / n_t / (|I| + |J|)`` of one support and n others, some at a time.

    Args:
        ours: a_t, the indices of the support in each tensor, shape ``(tensors,)``.
        theirs: b_t of the others, shape ``(n, tensors)``, or n rows.
        sizes: n_t, shape ``(tensors,)``; a tensor without parameters counts nothing.

    Returns:
        Shape ``(n,)``, 0 to 1; NaN where neither has an index.
    """
    shares = _shares(ours, sizes)
    total = float(ours.sum())
    found = np.empty(len(theirs), np.float64)
    step = max(1, _VALUES_AT_A_TIME // max(1, sizes.size))
    for begin in range(0, len(theirs), step):
        others = np.asarray(theirs[begin : begin + step], np.float64)
        totals = total + others.sum(axis=1)
        totals[totals == 0] = np.nan
        found[begin : begin + step] = 2.0 * (others @ shares) / totals
    return found


def expected_matrix(counts: Counts, sizes: Floats, report: Report | None = None) -> Floats:
    """S0 of all pairs.

    Args:
        counts: shape ``(n, tensors)``; a row of zeros stands for a model without one.
        sizes: n_t, shape ``(tensors,)``.
        report: called before each part with the tensors done and all; what it raises ends this.

    Returns:
        Shape ``(n, n)``; NaN in the rows and columns of models without a support.
    """
    values = np.asarray(counts)
    shared = np.zeros((len(values), len(values)))
    step = max(1, _VALUES_AT_A_TIME // max(1, len(values)))
    for begin in range(0, values.shape[1], step):
        if report is not None:
            report(begin, values.shape[1])
        part = values[:, begin : begin + step].astype(np.float64)
        shared += _shares(part, sizes[begin : begin + step]) @ part.T
    totals = values.sum(axis=1, dtype=np.float64)
    totals[totals == 0] = np.nan
    return np.asarray(2.0 * shared / (totals[:, None] + totals), np.float64)


def expected_of_pairs(
    counts: Counts,
    pairs: npt.NDArray[np.int64],
    sizes: Floats,
    stop: Callable[[], bool] | None = None,
) -> Floats:
    """S0 of some pairs, a few at a time.

    Args:
        counts: shape ``(n, tensors)``; a row of zeros stands for a model without one.
        pairs: rows of ``counts``, shape ``(p, 2)``.
        sizes: n_t, shape ``(tensors,)``.
        stop: asked before each part; once it is true, the rest is NaN.

    Returns:
        Shape ``(p,)``; NaN where one of the two has no support.
    """
    values = np.asarray(counts)
    totals = values.sum(axis=1, dtype=np.float64)
    totals[totals == 0] = np.nan
    found = np.full(len(pairs), np.nan)
    step = max(1, _VALUES_AT_A_TIME // max(1, values.shape[1]))
    for begin in range(0, len(pairs), step):
        if stop is not None and stop():
            break
        a, b = pairs[begin : begin + step].T
        shared = np.einsum("pt,pt->p", _shares(values[a], sizes), values[b].astype(np.float64))
        found[begin : begin + step] = 2.0 * shared / (totals[a] + totals[b])
    return found


def kappas(similarities: Floats, expected: Floats) -> Floats:
    """``(S - S0) / (1 - S0)`` of each; NaN where chance alone gives S = 1."""
    room = 1.0 - np.asarray(expected, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (similarities - expected) / room
    return np.where(room > 1e-12, found, np.nan)


def kappa(similarity: float, expected: float) -> float | None:
    """``(S - S0) / (1 - S0)``; None where chance alone gives S = 1."""
    room = 1.0 - expected
    return None if room <= 1e-12 else (similarity - expected) / room


def _shares(counts: Counts | Floats, sizes: Floats) -> Floats:
    """How much of each tensor a support holds, 0 to 1."""
    values = np.asarray(counts, np.float64)
    return np.divide(values, sizes, out=np.zeros_like(values), where=sizes > 0)
