"""Overlaps tensor by tensor over many pairs of models.

:mod:`modelkin.core.similarity.constants` tells which tensors no training changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import check_same_space
from modelkin.core.layout import Layout
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.constants import AGREE, AT_CHANCE, MIN_KAPPA

__all__ = ["AT_CHANCE", "TensorAgreement", "agreement", "shared_by_tensor"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_BLOCK_WORDS = 1 << 18
"""Words of two bitmaps that are read at a time."""


@dataclass(frozen=True, slots=True)
class TensorAgreement:
    """Figures of each tensor over some pairs, each of shape ``(tensors,)``.

    Attributes:
        similarity: the mean S within the tensor; NaN where no pair has an index in it.
        kappa: the mean kappa within it; NaN where every pair holds it whole or not at all.
        strangers: how many pairs are at chance elsewhere.
    """

    similarity: Floats
    kappa: Floats
    strangers: Integers


def shared_by_tensor(a: PackedSupport, b: PackedSupport, layout: Layout) -> Integers:
    """How many indices two supports share in each tensor, shape ``(tensors,)``.

    Two bitmaps are read in blocks, so little memory is taken whatever M is.

    Raises:
        SpaceMismatch: they are of different numbers of parameters.
    """
    check_same_space(a.num_parameters, b.num_parameters)
    if a.kind == "list" or b.kind == "list":
        return layout.counts(_common(*((a, b) if a.kind == "list" else (b, a))))
    ends = layout.ends.astype(np.int64)
    below = np.zeros(ends.size, np.int64)
    size = a.array.size
    for begin in range(0, size, _BLOCK_WORDS):
        end = min(size, begin + _BLOCK_WORDS)
        words = a.words(begin, end) & b.words(begin, end)
        below += _set_below(words, ends - 64 * begin)
    return np.diff(below, prepend=0)


def agreement(
    sizes: Floats, a: Integers, b: Integers, shared: Integers, covered: Floats | None = None
) -> TensorAgreement:
    """The figures of each tensor over p pairs.

    What a pair has elsewhere leaves out the tensor in question, and all others in which the pair
    agrees, if these are less than half of the parameters. (If they are more, the two are a model
    and its fine-tune, and the frozen half is what makes them kin.)

    Args:
        sizes: n_t, shape ``(tensors,)``.
        a: how many indices the first of each pair has in each tensor, of what both cover, shape
            ``(p, tensors)``.
        b: how many the second of each pair has, of the same shape.
        shared: how many both have, of the same shape.
        covered: how many parameters of each tensor both cover, of the same shape; None for all.
    """
    held, both = (a + b).astype(np.float64), shared * 2.0
    chance = 2.0 * _chance(sizes if covered is None else covered, a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        similarity = np.where(held > 0, both / held, np.nan)
        expected = chance / held
        room = 1.0 - expected
        kappa = np.where(room > 1e-12, (similarity - expected) / room, np.nan)
    smaller = np.minimum(a, b)
    agree = (smaller > 0) & (shared >= AGREE * smaller) & (kappa >= MIN_KAPPA)
    elsewhere = _kappa_elsewhere(sizes, held, np.asarray(both, np.float64), chance, agree)
    strangers = (elsewhere < AT_CHANCE) & ~np.isnan(kappa)
    return TensorAgreement(_mean(similarity), _mean(kappa), strangers.sum(axis=0))


def _kappa_elsewhere(
    sizes: Floats,
    held: Floats,
    shared: Floats,
    chance: Floats,
    agree: npt.NDArray[np.bool_],
) -> Floats:
    """Kappa of each pair without each tensor, shape ``(p, tensors)``; NaN where nothing is left.

    Args:
        sizes: n_t.
        held: a + b.
        shared: twice the shared indices.
        chance: twice those that chance shares.
        agree: where a pair agrees.
    """
    few = (agree * sizes).sum(axis=1, keepdims=True) < sizes.sum() / 2
    kept = ~(agree & few)

    def without(values: Floats) -> Floats:
        values = values * kept
        return np.asarray(values.sum(axis=1, keepdims=True) - values, np.float64)

    total = without(held)
    with np.errstate(divide="ignore", invalid="ignore"):
        measured, expected = without(shared) / total, without(chance) / total
        return np.where(1.0 - expected > 1e-12, (measured - expected) / (1.0 - expected), np.nan)


def _chance(sizes: Floats, a: Integers, b: Integers) -> Floats:
    """The indices that chance shares in each tensor."""
    product = a.astype(np.float64) * b
    chance: Floats = np.divide(product, sizes, out=np.zeros_like(product), where=sizes > 0)
    return chance


def _mean(values: Floats) -> Floats:
    """The mean over pairs without NaN; NaN where there is nothing else."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    mean: Floats = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return mean


def _common(indices: PackedSupport, other: PackedSupport) -> npt.NDArray[np.unsignedinteger]:
    """The indices of a list that another support holds too."""
    array = indices.array
    if other.kind == "bitmap":
        bits = other.array[array >> 6] >> (array & 63).astype(np.uint64)
        held = (bits & np.uint64(1)).astype(bool)
    else:
        places = np.minimum(np.searchsorted(other.array, array), other.array.size - 1)
        held = other.array[places] == array
    common: npt.NDArray[np.unsignedinteger] = array[held]
    return common


def _set_below(words: npt.NDArray[np.uint64], ends: Integers) -> Integers:
    """How many bits are set below each of some positions; positions may lie outside."""
    counts = np.zeros(words.size + 1, np.int64)
    np.cumsum(np.bitwise_count(words), out=counts[1:])
    inside = np.clip(ends, 0, 64 * words.size)
    place, rest = inside >> 6, (inside & 63).astype(np.uint64)
    mask = (np.uint64(1) << rest) - np.uint64(1)
    partial = np.bitwise_count(words[np.minimum(place, words.size - 1)] & mask)
    below: Integers = counts[place] + np.where(place < words.size, partial, 0)
    return below
