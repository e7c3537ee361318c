"""What is found of derivatives in their base, and of models in strangers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from modelkin.core.fingerprints.anatomy import TensorAnatomy, anatomy
from modelkin.core.fingerprints.chance import expected_keys, log10_tail
from modelkin.core.fingerprints.comparison import OVERDISPERSION
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker
from studies.lines.derivatives import Derivative
from studies.lines.zoo import Tensors

__all__ = [
    "SCALES",
    "Made",
    "fingerprints_of",
    "found",
    "log10_p",
    "meeting",
    "of_strangers",
    "share_of_lines",
]

SCALES: Final = (1, 8, 32)
_BASE: Final = "base"
_DERIVED: Final = ("copy", "part", "derived")


@dataclass(frozen=True)
class Made:
    """The fingerprints of a checkpoint.

    Attributes:
        whole: with all keys.
        usual: at the scale that it has by default.
    """

    whole: Fingerprint
    usual: Fingerprint

    def seen(self, scale: int | None) -> Fingerprint:
        """The fingerprint of a scale, or by default settings."""
        return self.usual if scale is None else self.whole.at(scale)


def fingerprints_of(tensors: Tensors) -> Made:
    """Both fingerprints of a checkpoint."""
    maker = FingerprintMaker()
    for name, values in tensors.items():
        maker.add(name, values)
    return Made(maker.finish(1), maker.finish())


def share_of_lines(child: Fingerprint, model: Fingerprint) -> float:
    """Of the child's keys, those that a model has; a line of several tensors counts as often."""
    return float(np.isin(child.keys, model.distinct).mean()) if child.keys.size else 0.0


def found(derivative: Derivative, base: Made, strangers: Mapping[str, Made]) -> dict[str, float]:
    """Figures of a derivative beside its base and strangers.

    Args:
        derivative: says where its tensors come from.
        base: the fingerprints of its base.
        strangers: those of others, by name; none of them may be named.

    Returns:
        ``lines``, the share that is found in the base by all keys; whether it is ``derived`` by
        default settings; the ``tensors`` that can be compared and those ``found`` at the right
        place, by default settings and at scales 1, 8 and 32. Over all of these, ``wrong``: tensors
        whose best source is elsewhere, and strangers that are parents; and ``beside``: tensors
        whose best source is right, and which have others elsewhere.
    """
    child = fingerprints_of(derivative.tensors)
    figures = {"lines": share_of_lines(child.whole, base.whole)}
    models = {_BASE: base, **strangers}
    wrong, beside = 0, 0
    for title, scale in (("", None), *((f" at {scale}", scale) for scale in SCALES)):
        answer = anatomy(
            child.seen(scale), {name: model.seen(scale) for name, model in models.items()}
        )
        parents = {parent.model: parent.verdict for parent in answer.parents}
        if scale is None:
            figures["derived"] = float(parents.get(_BASE) in _DERIVED)
        placed, others = _placed(answer.tensors, derivative)
        figures[f"found{title}"] = sum(placed)
        figures[f"tensors{title}"] = sum(
            each.tensor.reason is None and any(derivative.origins_of(each.tensor.names))
            for each in answer.tensors
        )
        wrong += len(placed) - sum(placed) + len(parents.keys() & strangers.keys())
        beside += others
    return figures | {"wrong": wrong, "beside": beside}


def _placed(tensors: Sequence[TensorAnatomy], derivative: Derivative) -> tuple[list[bool], int]:
    """Whether the best source of each tensor is right; and how many of these have wrong others."""
    placed, beside = list[bool](), 0
    for each in tensors:
        origins = set(derivative.origins_of(each.tensor.names))
        right = [
            source.model == _BASE and bool(origins.intersection(source.tensor.names))
            for source in each.sources
        ]
        placed += right[:1]
        beside += right[:1] == [True] and not all(right)
    return placed, beside


def log10_p(one: Fingerprint, other: Fingerprint) -> float:
    """The logarithm of the probability that strangers have so many keys in common."""
    scale = max(one.scale, other.scale)
    first, second = one.at(scale), other.at(scale)
    count, expected = meeting(first, second)
    return log10_tail(count, OVERDISPERSION * expected)


def meeting(one: Fingerprint, other: Fingerprint) -> tuple[int, float]:
    """How many keys two fingerprints of one scale have in common, and how many strangers have."""
    common = np.intersect1d(one.distinct, other.distinct, assume_unique=True).size
    return common, expected_keys(one.lines, other.lines, one.scale)


def of_strangers(models: Sequence[tuple[str, Fingerprint]]) -> dict[str, float]:
    """All pairs of models of two origins: keys in common, lambda, and the least P.

    Args:
        models: each with a word for its origin.
    """
    keys, expected, least, pairs = 0, 0.0, 0.0, 0
    for at, (origin, one) in enumerate(models):
        for other_origin, other in models[at + 1 :]:
            if origin != other_origin:
                count, chance = meeting(one, other)
                keys, expected, pairs = keys + count, expected + chance, pairs + 1
                least = min(least, log10_tail(count, OVERDISPERSION * chance))
    return {
        "pairs": pairs,
        "keys": keys,
        "lambda": expected,
        "ratio": keys / expected if expected else math.nan,
        "least log10 P": least,
    }
