"""Constants: the tensors that no training changed, known by a few models that agree in them.

Causal masks, sinusoids, windows, Fourier bases and one-hot tables lie in checkpoints beside what
was trained. Every model has the same entries in them, so their indices make strangers look like
kin. Two models that are strangers by everything else and agree in such a tensor show it: one pair
is enough where the indices are laid out regularly, as no training does it. A table without any
order may be copied from one model to the other, so that more models have to show it, which declare
no common base.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from modelkin.core.similarity.regularity import is_regular
from modelkin.core.similarity.tensor_probe import ProbedSupport, TensorProbe

__all__ = ["ConstantFinder", "Witness"]

Floats = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Shapes: TypeAlias = Callable[[], Sequence[tuple[int, ...]]]
"""Reads the shapes of all tensors; it is called once two strangers agree in a tensor."""

AGREE: Final = 0.95
"""Two models agree in a tensor if they share so much of the smaller of their sets within it.

With the same values and different thresholds, one set contains the other, whatever S is: Silero's
Fourier basis has S = .90 to .95 at K = 5%, and takes 60% of K. Rounding moves few.
"""
MIN_KAPPA: Final = 0.5
"""Within a tensor that supports hold nearly whole, S is large by chance: so much of what is beyond
chance they have to share, too. It also refuses sets of very different sizes.
"""
MIN_SHARED: Final = 16
MIN_SURPRISE: Final = 20.0
"""The fewest shared indices that say anything, and the least -log of their chance: one index that
two biases have in common is no agreement.
"""
KIN: Final = 0.3
"""The kappa from which on two models are kin by everything else, as lineages take it."""
AT_CHANCE: Final = 0.1
"""The kappa below which they are strangers beyond doubt."""
MIN_PAIRS: Final = 10
MIN_SHARE: Final = 0.9
"""A table without order is constant if so many pairs of strangers from different families, and so
large a share of all that there are, agree in it: five models, each with each.
"""


@dataclass(frozen=True, slots=True)
class Witness:
    """A model that may show constants.

    Attributes:
        support: the looked-at part of its support.
        family: what models that declare a common base have in common.
    """

    support: ProbedSupport
    family: Hashable


class ConstantFinder:
    """Finds the constants of one space; pairs that were compared once are remembered.

    Args:
        probe: the places of the tensors that are looked at.
    """

    def __init__(self, probe: TensorProbe) -> None:
        self._probe = probe
        self._pairs: dict[tuple[Hashable, Hashable], _Pair] = {}
        self._known: Mask = np.zeros(probe.tensors, np.bool_)

    def find(self, witnesses: Mapping[Hashable, Witness], shapes: Shapes) -> Mask:
        """Which tensors are constant, shape ``(tensors,)``.

        Args:
            witnesses: models by a key that stands for their content.
            shapes: returns the shapes of the tensors in order.
        """
        keys = [*itertools.combinations(witnesses, 2)]
        self._pairs = {key: self._pairs.get(key) or self._pair(witnesses, key) for key in keys}
        self._known = self._without_order(witnesses)
        shown = self._known.copy()
        for pair in self._pairs.values():
            shown |= pair.shown(self._known, shapes)
        return shown

    def find_with(
        self, support: ProbedSupport, witnesses: Mapping[Hashable, Witness], shapes: Shapes
    ) -> Mask:
        """The tensors that one more model shows to be constant, beside others; nothing is kept."""
        known, shown = self._known, np.zeros(self._probe.tensors, np.bool_)
        for witness in witnesses.values():
            shown |= _Pair(self._probe, support, witness.support).shown(known, shapes)
        return shown

    def _pair(self, witnesses: Mapping[Hashable, Witness], key: tuple[Hashable, Hashable]) -> _Pair:
        return _Pair(self._probe, *(witnesses[each].support for each in key))

    def _without_order(self, witnesses: Mapping[Hashable, Witness]) -> Mask:
        """The tensors in which nearly all strangers of different families agree."""
        count = np.zeros(self._probe.tensors, np.int64)
        agreeing = count.copy()
        for (one, other), pair in self._pairs.items():
            if witnesses[one].family != witnesses[other].family and pair.strangers:
                count += pair.held
                agreeing += pair.agree
        constant: Mask = (count >= MIN_PAIRS) & (agreeing >= MIN_SHARE * count)
        return constant


class _Pair:
    """Two models, and the tensors in which they agree."""

    def __init__(self, probe: TensorProbe, one: ProbedSupport, other: ProbedSupport) -> None:
        a, b = one.counts, other.counts
        shared = probe.shared(one, other)
        sizes = np.maximum(1, probe.sizes)
        chance = a * b / sizes
        smaller, larger = np.minimum(a, b), np.maximum(a, b)
        with np.errstate(divide="ignore", invalid="ignore"):
            expected, measured = 2 * chance / (a + b), 2 * shared / (a + b)
            kappa = (measured - expected) / (1 - expected)
        agree = (shared >= np.maximum(MIN_SHARED, AGREE * smaller)) & (kappa >= MIN_KAPPA)
        for tensor in np.flatnonzero(agree).tolist():
            agree[tensor] = _surprise(sizes[tensor], larger[tensor], shared[tensor]) >= MIN_SURPRISE
        self.agree: Mask = agree
        self.held: Mask = (smaller > 0) & (larger < probe.sizes)
        self._probe, self._support = probe, one
        self._figures = np.stack([2 * shared, 2 * chance, a + b]) * probe.scale
        elsewhere = self._kappa(~agree)
        # Of a model and its fine-tune the frozen half makes them kin, whatever a new head says.
        half = probe.num_parameters / 2
        few = float((probe.sizes * probe.scale)[self.agree].sum()) < half
        self.strangers = few and not elsewhere >= AT_CHANCE
        self._shows_nothing = not agree.any() or elsewhere >= KIN
        if self._shows_nothing:
            del self._figures  # most pairs show nothing, and layouts may have many tensors
        self._shown: tuple[bytes, Mask] | None = None

    def shown(self, constant: Mask, shapes: Shapes) -> Mask:
        """The regular tensors in which the two agree, if they are no kin by everything else.

        Args:
            constant: tensors that are known as constant, and count neither way.
            shapes: returns the shapes of the tensors.
        """
        key = constant.tobytes()
        if self._shown is None or self._shown[0] != key:
            self._shown = key, self._show(constant, shapes)
        return self._shown[1]

    def _show(self, constant: Mask, shapes: Shapes) -> Mask:
        agree, rest = self.agree & ~constant, ~self.agree & ~constant
        nothing = np.zeros_like(agree)
        if self._shows_nothing or not agree.any() or self._kappa(rest) >= KIN:
            return nothing
        held = self._figures[2]
        for tensor in sorted(np.flatnonzero(agree).tolist(), key=lambda t: -held[t]):
            if not self._is_regular(tensor, shapes()[tensor]):
                rest[tensor] = True  # it counts like what was trained
                if self._kappa(rest) >= KIN:
                    return nothing
        return agree & ~rest

    def _is_regular(self, tensor: int, shape: tuple[int, ...]) -> bool:
        bits = self._probe.bits(self._support, tensor)
        row = next((size for size in reversed(shape) if size > 1), 1)
        if 2 * row <= bits.size:
            bits = bits[-int(self._probe.skipped[tensor]) % row :]  # from the beginning of a row on
        return is_regular(bits, shape)

    def _kappa(self, kept: Mask) -> float:
        """Kappa over some tensors; NaN where they hold nothing, or nothing beyond chance."""
        shared, chance, held = self._figures[:, kept].sum(axis=1).tolist()
        if held <= 0 or held - chance <= 1e-9 * held:
            return math.nan
        return float((shared - chance) / (held - chance))


def _surprise(size: float, held: float, shared: float) -> float:
    """-log of the chance that so many indices of a tensor all lie among those that a model holds.

    Args:
        size: n, the entries of the tensor.
        held: how many the model holds.
        shared: how many indices there are, at most as many.
    """

    def log_ways(n: float) -> float:
        return math.lgamma(n + 1) - math.lgamma(n - shared + 1)

    return log_ways(size) - log_ways(held)
