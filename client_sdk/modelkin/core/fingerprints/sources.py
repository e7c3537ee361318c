"""Where a tensor, and where a checkpoint, comes from: what an anatomy is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.fingerprints.tensors import LinesOfTensor

__all__ = ["WHOLE", "Parent", "TensorAnatomy", "TensorSource", "Verdict", "words_of"]

Verdict = Literal["copy", "part", "derived", "reuses", "related"]
"""What a model has of another one, see :class:`Parent`."""

WHOLE: Final[frozenset[Verdict]] = frozenset({"copy", "part", "derived"})
"""Verdicts by which a model is more than the origin of a few tensors."""

_WORDS: Final[Mapping[str, str]] = {
    "copy": "a copy",
    "part": "a part",
    "derived": "shares weights",
    "reuses": "reuses tensors",
    "related": "related",
}
"""A verdict says what was seen, and not who made what of whom."""


def words_of(verdict: str) -> str:
    """A verdict in words for people; one that is not known stands for itself."""
    return _WORDS.get(verdict, verdict)


@dataclass(frozen=True)
class TensorSource:
    """A tensor of another model whose lines a tensor has.

    Attributes:
        model: the other model.
        tensor: its tensor.
        share: of the tensor's sampled lines, those that are found there.
        keys: how many these are, at the coarser of the scales of both.
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

    def to_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        others = ("model", "share", "keys", "expected", "log10_p", "kappa")
        named = {"names": list(self.tensor.names), "shape": list(self.tensor.shape)}
        return named | {name: getattr(self, name) for name in others}


@dataclass(frozen=True)
class TensorAnatomy:
    """Where a tensor comes from.

    Attributes:
        tensor: the tensor.
        keys: its sampled lines, at the checkpoint's own scale.
        sources: the tensors that have its lines, the largest share first; empty where nothing is
            found, or where ``tensor.reason`` says that it cannot be compared.
        shares: of its sampled lines, those that each model with a source has in all its tensors,
            by the model's name.
    """

    tensor: LinesOfTensor
    keys: int
    sources: tuple[TensorSource, ...]
    shares: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        return {
            "names": list(self.tensor.names),
            "shape": list(self.tensor.shape),
            "not_comparable": None if self.tensor.reason is None else self.tensor.reason.value,
            "keys": self.keys,
            "shares": dict(self.shares),
            "sources": [each.to_json() for each in self.sources],
        }


@dataclass(frozen=True)
class Parent:
    """A model with which the checkpoint has lines in common.

    Attributes:
        model: its name.
        verdict: ``copy`` where all lines of both are the same, and as many parameters; ``part``
            where all of the checkpoint's are found in a model that is no smaller; ``derived`` where
            they come from a quarter of it at least, ``reuses`` where from few tensors alone;
            ``related`` where no tensor has enough.
        share_of_lines: of the checkpoint's sampled lines, those that are found.
        added: those that no parent before has.
        share_of_parameters: of the parameters that are compared, by the share of each tensor.
        keys: the lines found.
        expected: how many strangers would have, at most.
        log10_p: the decimal logarithm of the probability of so many by chance.
        log10_e: that of how many strangers would have so many, of the models that were compared.
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
    log10_e: float
    tensors: tuple[str, ...]

    @property
    def words(self) -> str:
        """The verdict in words for people."""
        return words_of(self.verdict)

    @property
    def summary(self) -> str:
        """The verdict and its figures on a line."""
        shares = f"{self.share_of_lines:.1%} of lines, {self.share_of_parameters:.1%} of parameters"
        return f"{self.words}, {shares}, P {power_of_ten(self.log10_p)}"
