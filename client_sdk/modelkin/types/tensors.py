"""Answers about the tensors of a space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from modelkin.types.search import Ranking

__all__ = ["SpaceTensors", "TensorSummary"]


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """A tensor of a space.

    Attributes:
        size: n_t, its parameters.
        share: the share of the indices of all supports, 0 to 1; None before a support is counted.
        similarity: the mean S within it over the sampled pairs; None where none has an index in it.
        kappa: the mean kappa within it; None where chance alone gives every pair S = 1.
        strangers: how many of the sampled pairs have a kappa below .1 elsewhere.
        looks_constant: no training has changed it, as strangers show that hold the same indices
            within it; comparisons leave it out.
    """

    name: str
    size: int
    share: float | None = None
    similarity: float | None = None
    kappa: float | None = None
    strangers: int = 0
    looks_constant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SpaceTensors(Ranking[TensorSummary]):
    """The tensors of a space, in the order of its layout.

    Attributes:
        items: the tensors; the object itself is a sequence of them too.
        supports: how many supports were counted; of many a sample.
        pairs: how many sampled pairs of supports were compared.
        version: that of the space when it was read.
    """

    _row: ClassVar[type[Any]] = TensorSummary
    items: tuple[TensorSummary, ...]
    supports: int
    pairs: int
    version: int
