"""L-BFGS for many searches at once, none of which depends on another.

Source: Liu and Nocedal, On the limited memory BFGS method for large scale optimization (1989), with
steps that are halved until the value falls enough (Armijo).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Losses", "minimized"]

Losses = Callable[[Tensor, Tensor], Tensor]
"""From the searches that are looked at, shape ``(k,)``, and where they are, ``(k, D)``, to ``(k,)``
numbers that are to be least."""

_HISTORY = 20
_HALVINGS = 12
_ENOUGH = 1e-4


def minimized(losses: Losses, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Where each search ends, shape ``(n, D)``, and its loss, shape ``(n,)``.

    Args:
        losses: differentiable; a search that cannot fall any more ends.
        start: shape ``(n, D)``.
        steps: of each search at most.
    """
    at = start.detach().clone()
    moving = torch.arange(len(at))
    value, slope = _valued(losses, moving, at)
    pairs: list[tuple[Tensor, Tensor]] = []
    for _ in range(steps):
        direction = -_curved(pairs, slope)
        uphill = _dot(direction, slope) >= 0
        direction[uphill] = -slope[uphill]
        if not pairs:
            direction = direction / slope.norm(dim=1, keepdim=True).clamp_min(1e-30)
        after, value_after, slope_after = _stepped(losses, moving, at, value, slope, direction)
        moving = moving[(after != at).any(1)[moving]]
        if not len(moving):
            break
        pairs = [*pairs, (after - at, slope_after - slope)][-_HISTORY:]
        at, value, slope = after, value_after, slope_after
    return at, value


def _curved(pairs: list[tuple[Tensor, Tensor]], slope: Tensor) -> Tensor:
    """The slope times the inverse Hessian that the last steps suggest; of shape ``(n, D)``."""
    found, kept = slope.clone(), []
    for step, change in reversed(pairs):
        curvature = _dot(step, change)
        inverse = torch.where(curvature > 0, 1 / curvature.clamp_min(1e-38), 0.0)
        factor = inverse * _dot(step, found)
        found -= factor[:, None] * change
        kept.append((step, change, inverse, factor))
    if pairs:
        step, change = pairs[-1]
        scale = _dot(step, change) / _dot(change, change).clamp_min(1e-38)
        found *= torch.where(scale > 0, scale, 1.0)[:, None]
    for step, change, inverse, factor in reversed(kept):
        found += (factor - inverse * _dot(change, found))[:, None] * step
    return found


def _stepped(
    losses: Losses, moving: Tensor, at: Tensor, value: Tensor, slope: Tensor, direction: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The place, loss and slope after a step; those of before where no length lets it fall."""
    after, value_after, slope_after = at.clone(), value.clone(), slope.clone()
    fall, length = _dot(direction, slope), 1.0
    waiting = moving
    for _ in range(_HALVINGS):
        tried = at[waiting] + length * direction[waiting]
        found, steep = _valued(losses, waiting, tried)
        good = found <= value[waiting] + _ENOUGH * length * fall[waiting]
        good &= (found < value[waiting]) & torch.isfinite(steep).all(1)
        arrived = waiting[good]
        after[arrived], value_after[arrived] = tried[good], found[good]
        slope_after[arrived] = steep[good]
        waiting, length = waiting[~good], length / 2
        if not len(waiting):
            break
    return after, value_after, slope_after


def _valued(losses: Losses, rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        place = at.detach().requires_grad_()
        found = losses(rows, place)
        (slope,) = torch.autograd.grad(found.sum(), place)
    return found.detach(), slope


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(1)
