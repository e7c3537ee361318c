"""The anatomy of a checkpoint: which of given models each of its tensors comes from.

Equal keys are lines in common. That of two strangers some are equal is expected, and how many
``chance`` says; so an answer carries the probability of what was found, and nothing is said of a
model or a tensor where chance explains it. Equal lines mean a common origin: a base, a checkpoint,
or the same random seed. That there are none proves nothing, since a rotation removes them all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.chance import expected_keys, log10_tail
from modelkin.core.fingerprints.fingerprint import Fingerprint, LinesOfTensor
from modelkin.core.fingerprints.tensor_signatures import kappa_of

__all__ = ["Anatomy", "Parent", "TensorAnatomy", "TensorSource", "Verdict", "anatomy"]

Verdict = Literal["copy", "part", "derived", "reuses", "related"]
"""What a model has of another one, see :class:`Parent`."""

MODEL_LIMIT: Final = -13.0
"""The decimal logarithm of the probability below which two models have lines in common."""
TENSOR_LIMIT: Final = -3.0
"""That of two tensors, times the pairs of tensors that are compared."""
TENSOR_KEYS: Final = 3
"""The least keys that two tensors have in common."""
OVERDISPERSION: Final = 1.3
"""What strangers have in common at most, of what is expected: layers that were copied within a
model meet together."""
_ALL: Final = 0.99
_MOST_COMMON: Final = 0.9
_ENOUGH: Final = 0.25

Owners = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TensorSource:
    """A tensor of another model whose lines a tensor has.

    Attributes:
        model: the other model.
        tensor: its tensor.
        share: of the tensor's sampled lines, those that are found there.
        keys: how many these are.
        expected: how many strangers would have, at most.
        log10_p: the decimal logarithm of the probability of so many by chance.
        kappa: of the two tensors as a whole, where their shapes are equal; None elsewhere. It is
            about 1 for copies and 0 for tensors whose rows stand in another order.
    """

    model: str
    tensor: LinesOfTensor
    share: float
    keys: int
    expected: float
    log10_p: float
    kappa: float | None


@dataclass(frozen=True)
class TensorAnatomy:
    """Where a tensor comes from.

    Attributes:
        tensor: the tensor.
        keys: its sampled lines.
        sources: the tensors that have its lines, the largest share first; empty where nothing is
            found, or where ``tensor.reason`` says that it cannot be compared.
        shares: of its sampled lines, those that each model with a source has in all its tensors,
            by the model's name.
    """

    tensor: LinesOfTensor
    keys: int
    sources: tuple[TensorSource, ...]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class Parent:
    """A model with which the checkpoint has lines in common.

    Attributes:
        model: its name.
        verdict: ``copy`` where all lines of both are the same, ``part`` where all of the
            checkpoint's are found; ``derived`` where they come from a quarter of it at least,
            ``reuses`` where from few tensors alone; ``related`` where no tensor has enough.
        share_of_lines: of the checkpoint's sampled lines, those that are found.
        added: those that no parent before has.
        share_of_parameters: of the parameters that are compared, by the share of each tensor.
        keys: the lines found.
        expected: how many strangers would have, at most.
        log10_p: the decimal logarithm of the probability of so many by chance.
        tensors: the tensors that hold most of what is found.
    """

    model: str
    verdict: Verdict
    share_of_lines: float
    added: float
    share_of_parameters: float
    keys: int
    expected: float
    log10_p: float
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class Anatomy:
    """Where a checkpoint comes from.

    Attributes:
        tensors: each of its tensors, in its order.
        parents: models with which it has lines in common, the one that adds most first.
        scale: the coarsest scale that was compared.
    """

    tensors: tuple[TensorAnatomy, ...]
    parents: tuple[Parent, ...]
    scale: int


@dataclass(frozen=True, eq=False)
class _Found:
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


def anatomy(checkpoint: Fingerprint, models: Mapping[str, Fingerprint]) -> Anatomy:
    """Find the tensors of models whose lines a checkpoint has.

    Args:
        checkpoint: its fingerprint.
        models: those of the models that may be its parents, by name. Two fingerprints are compared
            at the coarser of their scales.
    """
    compared = [_compare(checkpoint, name, model) for name, model in models.items()]
    found = [each for each in compared if each.log10_p < MODEL_LIMIT]
    held = np.bincount(checkpoint.owners, minlength=len(checkpoint.tensors))
    tensors = tuple(
        TensorAnatomy(
            tensor,
            int(held[number]),
            tuple(
                sorted(
                    (source for each in found for source in each.sources.get(number, ())),
                    key=lambda source: (-source.share, source.log10_p, source.model),
                )
            ),
            {
                each.model: float(each.of_tensor[number] / each.held[number])
                for each in found
                if number in each.sources
            },
        )
        for number, tensor in enumerate(checkpoint.tensors)
    )
    scale = max([checkpoint.scale, *(model.scale for model in models.values())])
    return Anatomy(tensors, _parents(checkpoint, found), scale)


def _parents(checkpoint: Fingerprint, found: list[_Found]) -> tuple[Parent, ...]:
    """The models by what each adds to those before."""
    parents, left = list[Parent](), list(found)
    covered = np.zeros(0, np.uint64)
    while left:
        news = [np.setdiff1d(each.keys, covered, assume_unique=True).size for each in left]
        at = max(range(len(left)), key=lambda i: (news[i], left[i].share, left[i].model))
        best = left.pop(at)
        added = best.share * news[at] / best.keys.size
        parents.append(_parent(checkpoint, best, added))
        covered = np.union1d(covered, best.keys)
    return tuple(parents)


def _parent(checkpoint: Fingerprint, found: _Found, added: float) -> Parent:
    shares = found.of_tensor / np.maximum(found.held, 1)
    sizes = np.array([0 if each.reason else each.size for each in checkpoint.tensors], np.float64)
    order = np.argsort(-shares, kind="stable")
    reached = np.cumsum(found.of_tensor[order])
    fewest = order[: int(np.searchsorted(reached, _MOST_COMMON * reached[-1])) + 1]
    held = float(found.held[fewest].sum() / found.held.sum())
    return Parent(
        found.model,
        _verdict(found, held),
        found.share,
        added,
        float((sizes * shares).sum() / sizes.sum()),
        found.keys.size,
        found.expected,
        found.log10_p,
        tuple(checkpoint.tensors[number].name for number in sorted(fewest.tolist())),
    )


def _verdict(found: _Found, held: float) -> Verdict:
    if found.share >= _ALL:
        return "copy" if found.share_of_model >= _ALL else "part"
    if not found.sources:
        return "related"
    return "derived" if held >= _ENOUGH else "reuses"


def _compare(checkpoint: Fingerprint, name: str, model: Fingerprint) -> _Found:
    scale = max(checkpoint.scale, model.scale)
    ours, theirs = checkpoint.at(scale), model.at(scale)
    common = np.intersect1d(ours.distinct, theirs.distinct, assume_unique=True)
    expected, log10_p = _chance(common.size, ours.lines, theirs.lines, scale)
    held = np.bincount(ours.owners, minlength=len(ours.tensors))
    inside = np.isin(ours.keys, common)
    of_tensor = np.bincount(ours.owners[inside], minlength=len(ours.tensors))
    return _Found(
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
    for (number, other), count in _pairs(ours, theirs):
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


def _pairs(ours: Fingerprint, theirs: Fingerprint) -> list[tuple[tuple[int, int], int]]:
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
