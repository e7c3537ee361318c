"""Inputs from gradients: a search for inputs whose gradient matches what an aggregator saw.

iDLG with the label given. Coordinates that were not seen are left out of the match, not taken for
zero. Of a sum, the inputs of all its members are searched together.

Sources: Zhu, Liu and Han, Deep Leakage from Gradients (2019); Zhao, Mopuri and Bilen, iDLG (2020).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from modelkin.torch.privacy.flat_network import FlatNetwork

__all__ = ["invert"]

RESTARTS = 2
_HISTORY = 50


def invert(
    network: FlatNetwork,
    seen: Tensor,
    at: Tensor,
    targets: Tensor,
    shape: torch.Size,
    value_range: tuple[float, float],
    *,
    steps: int,
    seed: int,
) -> Tensor | None:
    """The inputs whose mean gradient is nearest to the one that was seen.

    Args:
        network: at the weights of the gradient.
        seen: the values of the mean gradient of a few samples, of shape ``(values,)``.
        at: their coordinates, of the same shape.
        targets: of those samples, of shape ``(n, ...)``.
        shape: of one input.
        value_range: the least and the largest value of an input.
        steps: of L-BFGS at most, from each of two random starts.
        seed: of the starts.

    Returns:
        The inputs, of shape ``(n, *shape)``, in the order of the targets; None where the search
        found no finite gradient.
    """
    low, high = value_range
    generator = torch.Generator().manual_seed(seed)
    best, least = None, math.inf
    for _ in range(RESTARTS):
        start = torch.rand(len(targets), *shape, generator=generator, dtype=seen.dtype)
        guess = (low + (high - low) * start).to(seen.device)
        distance = _search(network, seen, at, targets, guess, steps)
        if distance < least:
            best, least = guess.detach().clamp(low, high), distance
    return best


def _search(
    network: FlatNetwork, seen: Tensor, at: Tensor, targets: Tensor, guess: Tensor, steps: int
) -> float:
    """Move the guess in place; return the squared distance, relative to what was seen."""
    scale = 1 / seen.square().sum().clamp_min(torch.finfo(seen.dtype).tiny)
    optimizer = torch.optim.LBFGS(
        [guess.requires_grad_()],
        max_iter=steps,
        history_size=_HISTORY,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-12,
        tolerance_change=1e-14,
    )

    def distance() -> Tensor:
        optimizer.zero_grad()
        found = network.gradient(guess, targets, differentiable=True)[at]
        loss = (found - seen).square().sum() * scale
        if loss.requires_grad:
            loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(distance)
        found = float(distance().detach())
    return found if math.isfinite(found) and bool(torch.isfinite(guess).all()) else math.inf
