"""How far the gradient of a guess is from what was seen, by what an attacker knows of the sender.

Each function gives a mismatch: of a guess's whole gradient, zero where nothing speaks against it.
An attacker that knows nothing compares values; one that knows how they were made compares what its
guess would have sent.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Mismatch", "between", "clipped", "larger_unseen", "matching", "smaller_unseen"]

Mismatch = Callable[[Tensor], Tensor]
"""From a gradient of shape ``(M,)`` to a number that is to be least."""


def matching(seen: Tensor, at: Tensor, error: Tensor | None = None) -> Mismatch:
    """The squared distance of the values that were seen, relative to them.

    Args:
        seen: values of a gradient, of shape ``(values,)``.
        at: their coordinates, of the same shape.
        error: how far each may be off, as a deviation; None for alike.
    """
    weight = torch.ones_like(seen) if error is None else 1 / error
    scale = 1 / _size((seen * weight).square().sum())
    return lambda gradient: ((gradient[at] - seen) * weight).square().sum() * scale


def clipped(seen: Tensor, at: Tensor, clip: float) -> Mismatch:
    """As :func:`matching`, of gradients whose norm was cut to ``clip``."""
    match = matching(seen, at)
    return lambda gradient: match(gradient * (clip / _size(gradient.norm())).clamp(max=1))


def between(low: Tensor, high: Tensor, at: Tensor) -> Mismatch:
    """The squares by which values leave the steps that they were rounded from."""
    scale = 1 / _size((high - low).square().sum())

    def outside(gradient: Tensor) -> Tensor:
        found = gradient[at]
        return ((low - found).relu() + (found - high).relu()).square().sum() * scale

    return outside


def smaller_unseen(seen: Tensor, at: Tensor) -> Mismatch:
    """As :func:`matching`, where no value that was not sent is larger than the least sent."""
    return _bounded(seen, at, lambda unseen: (unseen - seen.abs().min()).relu())


def larger_unseen(seen: Tensor, at: Tensor) -> Mismatch:
    """As :func:`matching`, where no value that was not sent is smaller than the largest sent."""
    return _bounded(seen, at, lambda unseen: (seen.abs().max() - unseen).relu())


def _bounded(seen: Tensor, at: Tensor, excess: Callable[[Tensor], Tensor]) -> Mismatch:
    match, scale = matching(seen, at), 1 / _size(seen.square().sum())

    def mismatch(gradient: Tensor) -> Tensor:
        hidden = torch.ones_like(gradient, dtype=torch.bool)
        hidden[at] = False
        unseen = gradient[hidden].abs()
        return match(gradient) + excess(unseen).square().sum() * scale

    return mismatch


def _size(value: Tensor) -> Tensor:
    return value.clamp_min(torch.finfo(value.dtype).tiny)
