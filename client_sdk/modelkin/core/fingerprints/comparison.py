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
from modelkin.core.fingerprints.lines import present
from modelkin.core.fingerprints.sources import TensorSource
from modelkin.core.fingerprints.tensor_signatures import kappa_of
from modelkin.core.fingerprints.tensors import LinesOfTensor

__all__ = [
    "ALL_LINES",
    "MODEL_LIMIT",
    "TENSOR_KEYS",
    "TENSOR_LIMIT",
    "Comparison",
    "Meetings",
    "chance",
    "compare",
]

ALL_LINES: Final = 0.99
"""The share of lines from which on all are said to be found; ties and rounding cost a few."""
MODEL_LIMIT: Final = -13.0
"""The decimal logarithm of the probability below which two models have lines in common."""
TENSOR_LIMIT: Final = -3.0
"""That of two tensors, times the pairs of tensors that are compared."""
TENSOR_KEYS: Final = 3
"""The least keys that two tensors have in common."""
MOST_MEETINGS: Final = 1 << 21
"""Pairs of a line with a tensor of each side that has it: a line of a thousand experts of both
would make a million, and tells none of them apart."""
OVERDISPERSION: Final = 1.3
"""What strangers have in common at most, of what is expected: layers that were copied within a
model meet together."""

Owners = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Meetings:
    """The lines in common, once for each pair of tensors that has them; all of shape ``(n,)``.

    Where these are more than 2^21, lines that the most tensors of the model have are left out.

    Attributes:
        first: the number of the checkpoint's tensor.
        second: that of the model's.
        at: the place of the key among the checkpoint's.
    """

    first: Owners
    second: Owners
    at: Owners

    def pairs(self) -> dict[tuple[int, int], int]:
        """The pairs of tensors with lines in common, and how many these are."""
        codes, counts = np.unique(self.first << 32 | self.second, return_counts=True)
        return {
            (code >> 32, code & 0xFFFFFFFF): count
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
        }


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
        expected: how many common keys strangers would have, at most.
        log10_p: the decimal logarithm of the probability of so many by chance.
        sources: what is found of each tensor of the checkpoint, by its number.
        ours: the checkpoint, at the scale of both.
        theirs: the model.
        meetings: where its lines and those of the model meet.
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
    ours: Fingerprint
    theirs: Fingerprint
    meetings: Meetings


def compare(checkpoint: Fingerprint, name: str, model: Fingerprint) -> Comparison:
    """Compare a checkpoint with a model, at the coarser of their scales."""
    scale = max(checkpoint.scale, model.scale)
    ours, theirs = checkpoint.at(scale), model.at(scale)
    common = _common(ours, theirs)
    meetings = _meetings(ours, theirs, common)
    expected, log10_p = chance(common.size, ours.lines, theirs.lines, scale)
    held = np.bincount(ours.owners, minlength=len(ours.tensors))
    inside = present(ours.keys, common)
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
        _sources(name, ours, theirs, held, meetings),
        ours,
        theirs,
        meetings,
    )


def _sources(
    name: str, ours: Fingerprint, theirs: Fingerprint, held: Owners, meetings: Meetings
) -> dict[int, list[TensorSource]]:
    """The pairs of tensors with more common keys than chance explains, by the first's number."""
    pairs = sum(1 for a in ours.tensors if a.lines) * sum(1 for b in theirs.tensors if b.lines)
    sources = dict[int, list[TensorSource]]()
    for (number, other), count in meetings.pairs().items():
        if count < TENSOR_KEYS:
            continue
        mine, its = ours.tensors[number], theirs.tensors[other]
        expected, log10_p = chance(count, mine.lines, its.lines, ours.scale)
        if log10_p + math.log10(pairs) < TENSOR_LIMIT:
            share = count / int(held[number])
            kappa = _kappa(mine, its)
            source = TensorSource(name, its, share, count, expected, log10_p, kappa)
            sources.setdefault(number, []).append(source)
    return sources


def chance(
    count: int, first: Mapping[int, int], second: Mapping[int, int], scale: int
) -> tuple[float, float]:
    """How many keys strangers have in common at most, and the logarithm of the P of so many."""
    expected = OVERDISPERSION * expected_keys(first, second, scale)
    return expected, log10_tail(count, expected)


def _kappa(one: LinesOfTensor, other: LinesOfTensor) -> float | None:
    if one.shape != other.shape or one.signature is None or other.signature is None:
        return None
    return kappa_of(one.signature, other.signature, one.row_length)


def _common(ours: Fingerprint, theirs: Fingerprint) -> npt.NDArray[np.uint64]:
    """The keys in common, of lines of one length: those of others are no equal lines."""
    common = ours.distinct[present(ours.distinct, theirs.keys)]
    lengths, others = (each.lengths[np.searchsorted(each.keys, common)] for each in (ours, theirs))
    equal: npt.NDArray[np.uint64] = common[lengths == others]
    return equal


def _meetings(ours: Fingerprint, theirs: Fingerprint, common: npt.NDArray[np.uint64]) -> Meetings:
    begin = np.searchsorted(theirs.keys, ours.keys, "left")
    counts = np.searchsorted(theirs.keys, ours.keys, "right") - begin
    counts[~present(ours.keys, common)] = 0
    if counts.sum() > MOST_MEETINGS:
        order = np.argsort(counts, kind="stable")
        counts[order[np.cumsum(counts[order]) > MOST_MEETINGS]] = 0
    at = np.repeat(np.arange(ours.keys.size), counts)
    nth = np.arange(at.size) - np.repeat(np.cumsum(counts) - counts, counts)
    second = theirs.owners[begin[at] + nth].astype(np.int64)
    return Meetings(ours.owners[at].astype(np.int64), second, at)
