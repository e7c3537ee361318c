"""Differences of checkpoints of different precision, without what rounding alone explains."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.rounding import FLOAT_FORMATS, is_rounded, least_changes

__all__ = ["RoundingSamples", "changes", "rounding_note"]

Shares = list[tuple[float, int]]
"""Shares of the values of tensors, each with the size of its tensor."""

_SAMPLE_SIZE: Final = 1 << 13
"""Values of each tensor that a note is about."""

_FEW: Final = 0.2
"""The share of changed weights below which rounding decides much of which they are. Fine-tunes that
have nothing in common have a kappa of up to .3 there, and of up to .6 where almost none changed."""

_MOST: Final = 0.8
"""The share of differences that are no larger than the base's rounding from which a note says so.
"""


def changes(
    values: npt.NDArray[Any], before: npt.NDArray[Any], tensor: StoredTensor, base: StoredTensor
) -> npt.NDArray[Any]:
    """The magnitudes of differences from a base, without what rounding alone explains.

    Args:
        values: values of the tensor.
        before: the same values of the base.
        tensor: the tensor of the model.
        base: the tensor of the base.
    """
    stored, of_base = FLOAT_FORMATS.get(tensor.dtype), FLOAT_FORMATS.get(base.dtype)
    if stored is None or of_base is None or not is_rounded(of_base, stored):
        exact: npt.NDArray[Any] = np.abs(values - before)
        return exact
    return least_changes(values, before, stored, of_base)


def rounding_note(checkpoint: Checkpoint, base: Checkpoint) -> str | None:
    """A note for differences that are mostly rounding, which no remedy separates from training.

    It is estimated from a stretch of each tensor.

    Args:
        checkpoint: the model, with weights of its own.
        base: a checkpoint of the same tensors, under any names that mean the same.

    Returns:
        None where differences show training.
    """
    mine, theirs = checkpoint.beside(base)
    samples = RoundingSamples()
    for tensor, other in zip(mine.tensors, theirs.tensors, strict=True):
        samples.add(tensor, other)
    return samples.note(checkpoint, base)


class RoundingSamples:
    """Stretches of the tensors of a model and its base, for a :func:`rounding_note`."""

    def __init__(self) -> None:
        self._changed: Shares = []
        self._within_base: Shares = []
        self._alike = True
        self._known = True

    def add(self, tensor: StoredTensor, base: StoredTensor) -> None:
        """Look at a tensor and the same of the base."""
        if tensor.dtype == base.dtype or not tensor.size:
            return
        self._alike = False
        if not {tensor.dtype, base.dtype} <= FLOAT_FORMATS.keys():
            self._known = False
            return
        self._changed += _changed(tensor, base)
        self._within_base += _within_base(tensor, base)

    def state(self) -> dict[str, Any]:
        """All that :meth:`restore` needs to go on, as JSON has it."""
        return {
            "changed": self._changed,
            "within_base": self._within_base,
            "alike": self._alike,
            "known": self._known,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        self._changed = [(share, size) for share, size in state["changed"]]
        self._within_base = [(share, size) for share, size in state["within_base"]]
        self._alike, self._known = state["alike"], state["known"]

    def note(self, checkpoint: Checkpoint, base: Checkpoint) -> str | None:
        """The note on all tensors that were looked at; None where differences show training."""
        if self._alike:
            return None
        about = (
            f"the base is {', '.join(base.dtypes)}, the checkpoint {', '.join(checkpoint.dtypes)}: "
        )
        if not self._known:
            return f"{about}differences include rounding, which models of one base share"
        changed = _mean(self._changed)
        if changed is not None and changed < _FEW:
            return (
                f"{about}{changed:.1%} of the weights of trained tensors moved farther than "
                f"rounding, and which ones depends on the base too: unrelated models of this base "
                f"seem similar"
            )
        rounded = _mean(self._within_base)
        if rounded is not None and rounded > _MOST:
            return (
                f"{about}{rounded:.0%} of the differences are within the rounding of such a base: "
                f"give the base in the checkpoint's precision where there is one"
            )
        return None


def _changed(tensor: StoredTensor, base: StoredTensor) -> Shares:
    """The share of changed weights, and the tensor's size; none where none or no rounding is."""
    if not is_rounded(FLOAT_FORMATS[base.dtype], FLOAT_FORMATS[tensor.dtype]):
        return []
    values, before = _samples(tensor, base)
    share = float(np.count_nonzero(changes(values, before, tensor, base))) / values.size
    return [(share, tensor.size)] if share else []


def _within_base(tensor: StoredTensor, base: StoredTensor) -> Shares:
    """The share of differences that the rounding of the base explains, and the tensor's size."""
    if not is_rounded(FLOAT_FORMATS[tensor.dtype], FLOAT_FORMATS[base.dtype]):
        return []
    values, before = _samples(tensor, base)
    unlike = np.flatnonzero(values != before)
    beyond = np.count_nonzero(changes(before[unlike], values[unlike], base, tensor))
    return [(1 - float(beyond) / unlike.size, tensor.size)] if unlike.size else []


def _samples(tensor: StoredTensor, base: StoredTensor) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    begin = max(0, (tensor.size - _SAMPLE_SIZE) // 2)
    end = min(tensor.size, begin + _SAMPLE_SIZE)
    return tensor.part(begin, end), base.part(begin, end)


def _mean(shares: Shares) -> float | None:
    """The mean of shares, weighted by sizes; None without any."""
    total = sum(size for _, size in shares)
    return sum(share * size for share, size in shares) / total if total else None
