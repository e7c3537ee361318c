"""Two fingerprints compared: the lines in common, and the tensors that have them.

Equal keys are lines in common. That of two strangers some are equal is expected, and how many
``chance`` says; so what is found has a probability, and no tensor is named that chance explains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.chance import expected_keys, log10_tail
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.sources import TensorSource
from modelkin.core.fingerprints.tensor_signatures import kappa_of
from modelkin.core.fingerprints.tensors import LinesOfTensor

__all__ = ["MODEL_LIMIT", "Comparison", "compare"]

MODEL_LIMIT: Final = -13.0
"""The decimal logarithm of the probability below which two models have lines in common."""
TENSOR_LIMIT: Final = -3.0
"""That of two tensors, times the pairs of tensors that are compared."""
TENSOR_KEYS: Final = 3
"""The least keys that two tensors have in common."""
OVERDISPERSION: Final = 1.3
"""What strangers have in common at most, of what is expected: layers that were copied within a
model meet together."""

Owners = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Comparison:
    """What a checkpoint and a model have in common.

    Attributes:
        model: the model's name.
        keys: the common keys, each once, ascending.
        of_tensor: how many of them each tensor of the checkpoint has.
        held: the sampled keys of each tensor of the checkpoint, at the scale of both.
        share: of the checkpoint's keys at that scale.
        share_of_model: of the model's.
        sources: what is found of each tensor of the checkpoint, by its number.
    """

    model: str
    keys: npt.NDArray[np.uint64]
    of_tensor: Owners
    held: Owners
    share: float
    share_of_model: float
    expected: float
    log10_p: float
    sources: Mapping[int, list[TensorSource]]


def compare(checkpoint: Fingerprint, name: str, model: Fingerprint) -> Comparison:
    scale = max(checkpoint.scale, model.scale)
    ours, theirs = checkpoint.at(scale), model.at(scale)
    common = np.intersect1d(ours.distinct, theirs.distinct, assume_unique=True)
    expected, log10_p = _chance(common.size, ours.lines, theirs.lines, scale)
    held = np.bincount(ours.owners, minlength=len(ours.tensors))
    inside = np.isin(ours.keys, common)
    of_tensor = np.bincount(ours.owners[inside], minlength=len(ours.tensors))
    return Comparison(
        name,
        common,
        of_tensor,
        held,
        common.size / max(1, ours.distinct.size),
        common.size / max(1, theirs.distinct.size),
        expected,
        log10_p,
        _sources(name, ours, theirs, held),
    )


def _sources(
    name: str, ours: Fingerprint, theirs: Fingerprint, held: Owners
) -> dict[int, list[TensorSource]]:
    """The pairs of tensors with more common keys than chance explains, by the first's number."""
    pairs = sum(1 for a in ours.tensors if a.lines) * sum(1 for b in theirs.tensors if b.lines)
    sources = dict[int, list[TensorSource]]()
    for (number, other), count in pairs_of_tensors(ours, theirs):
        if count < TENSOR_KEYS:
            continue
        mine, its = ours.tensors[number], theirs.tensors[other]
        expected, log10_p = _chance(count, mine.lines, its.lines, ours.scale)
        if log10_p + math.log10(pairs) < TENSOR_LIMIT:
            share = count / int(held[number])
            kappa = _kappa(mine, its)
            source = TensorSource(name, its, share, count, expected, log10_p, kappa)
            sources.setdefault(number, []).append(source)
    return sources


def _chance(
    count: int, first: Mapping[int, int], second: Mapping[int, int], scale: int
) -> tuple[float, float]:
    """How many keys strangers have in common at most, and the logarithm of the P of so many."""
    expected = OVERDISPERSION * expected_keys(first, second, scale)
    return expected, log10_tail(count, expected)


def _kappa(one: LinesOfTensor, other: LinesOfTensor) -> float | None:
    if one.shape != other.shape or one.signature is None or other.signature is None:
        return None
    return kappa_of(one.signature, other.signature, one.row_length)


def pairs_of_tensors(ours: Fingerprint, theirs: Fingerprint) -> list[tuple[tuple[int, int], int]]:
    """The numbers of tensors of both with keys in common, and how many these are."""
    begin = np.searchsorted(theirs.keys, ours.keys, "left")
    counts = np.searchsorted(theirs.keys, ours.keys, "right") - begin
    first = np.repeat(ours.owners.astype(np.int64), counts)
    at = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    second = theirs.owners[np.repeat(begin, counts) + at].astype(np.int64)
    codes, found = np.unique(first * len(theirs.tensors) + second, return_counts=True)
    return [
        (divmod(code, len(theirs.tensors)), count)
        for code, count in zip(codes.tolist(), found.tolist(), strict=True)
    ]
