"""The empirical Fisher: the importance of each parameter for a model's data.

The Fisher may also be estimated again from resamples of the same data. Nothing here trains, or
changes the model's mode, gradients or buffers. ``modelkin.select_support`` chooses a support.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from modelkin.errors import InvalidParameter
from modelkin.torch.gradients import Forward, LossFunction, Tensors
from modelkin.torch.squares import SquareSums
from modelkin.torch.vector import in_layout_order

__all__ = ["fisher_importance", "fisher_resamples"]


@torch.inference_mode(False)
def fisher_importance(
    model: nn.Module,
    loss_fn: LossFunction,
    loader: Iterable[Any],
    *,
    forward: Forward | None = None,
    max_memory: int = 2**30,
    vectorize: bool = True,
) -> Tensor:
    """The empirical Fisher diagonal: the mean over samples of squared per-sample gradients, exact.

    Every gradient is of one sample, not of a mini-batch, at the model's current weights.
    Squares are summed in float64, so neither batch size nor chunking changes the result beyond the
    rounding of the gradients. The model's mode, ``.grad`` and buffers never change; the caller's
    ``no_grad`` or ``inference_mode`` does not matter.

    Args:
        model: a model in the mode for its gradients, nearly always after ``model.eval()``.
        loss_fn: called as ``loss_fn(output, target)`` on batches of one, gives one number: any
            torch loss with its default reduction. The loss's own parameters are not counted.
        loader: yields ``(input, target)`` pairs, as ``torch.utils.data.DataLoader`` does. Each of
            the two is a tensor of shape ``(n, ...)``, samples first, or tuples, lists and dicts of
            such tensors; they are moved to the model's device.
        forward: ``forward(model, input)`` in place of ``model(input)``, for instance
            ``lambda model, batch: model(**batch).logits``.
        max_memory: bytes for the per-sample gradients. It sets how many samples run together, by
            ``samples * trainable parameters * bytes of one``: at least one, at most a batch. Their
            forward and backward pass, and 12 bytes a parameter for the sums and the result, need
            memory beside it.
        vectorize: whether samples run together through ``torch.func.vmap``. False runs them one by
            one with plain autograd: the same result, slower, for models that vmap cannot trace.

    Returns:
        float32 of shape ``(M,)`` on the device of the model's first parameter, in the order of
        ``layout_of(model)``; exactly 0 for frozen parameters (``requires_grad=False``) and for
        parameters that the loss does not depend on.

    Raises:
        InvalidParameter: the model mixes samples (such as batch normalisation in training mode) or
            is random (dropout in training mode); vmap cannot trace it; no parameter is trainable;
            the loader is empty or does not yield pairs; the loss is not one number; an argument is
            out of range; the device is out of memory (the error names the setting); a parameter is
            sharded, complex or quantised.
        InvalidImportance: a gradient is NaN or infinite, or its square too large for float32.
        InvalidLayout: see :func:`layout_of`.

    Source: the empirical Fisher of the Index-Overlap Similarity paper (Background, and Importance
    accumulation).
    """
    squares = SquareSums(
        model, loss_fn, forward=forward, max_memory=max_memory, vectorize=vectorize
    )
    count = sum(squares.batches(loader))
    return _mean(squares, squares.sums, count)


@torch.inference_mode(False)
def fisher_resamples(
    model: nn.Module,
    loss_fn: LossFunction,
    loader: Iterable[Any],
    *,
    resamples: int = 8,
    seed: int = 0,
    forward: Forward | None = None,
    max_memory: int = 2**30,
    vectorize: bool = True,
) -> tuple[Tensor, Tensor]:
    """:func:`fisher_importance` and its estimates from resampled mini-batches, in one pass.

    The resamples serve to check a stability target::

        importance, resamples = fisher_resamples(model, loss_fn, loader)
        modelkin.select(importance, coverage=0.8, stability=0.9, resamples=resamples)

    Mini-batches are resampled by the Bayesian bootstrap: in each resample every batch has a random
    weight of mean 1, so that one pass over a loader of unknown length is enough. All samples of a
    batch share its weight: shuffle, and use batches that are small relative to the data.

    Args:
        model: see :func:`fisher_importance`, also for ``loss_fn``.
        loader: see there; it needs two or more non-empty batches.
        resamples: r, at least 2. Each takes 4 bytes a parameter, and 8 more are needed for all.
        seed: 0 or more; equal seeds give mini-batches the same random weights.
        forward: see :func:`fisher_importance`, also for ``max_memory`` and ``vectorize``.

    Returns:
        The importance, float32 of shape ``(M,)``, and the resamples, float32 of shape ``(r, M)``,
        both on the device of the model's first parameter.

    Raises:
        InvalidParameter: fewer than two batches or resamples, or as :func:`fisher_importance`,
            which raises the other errors too.

    Source: Rubin, The Bayesian Bootstrap (1981); section 3.2 of the Index-Overlap Similarity paper.
    """
    if isinstance(resamples, bool) or not isinstance(resamples, int) or resamples < 2:
        raise InvalidParameter(
            f"resamples must be an integer of at least 2, not {resamples!r}", field="resamples"
        )
    squares = SquareSums(
        model, loss_fn, forward=forward, max_memory=max_memory, vectorize=vectorize
    )
    totals = {name: torch.zeros_like(batch) for name, batch in squares.sums.items()}
    size = sum(p.numel() for p in squares.parameters.values())
    again = torch.zeros(resamples, size, device=next(iter(squares.parameters.values())).device)
    sizes, weights = [], []
    generator = np.random.default_rng(seed)
    for n in squares.batches(loader):
        sizes.append(n)
        weights.append(generator.standard_exponential(resamples))
        _count_batch(squares, totals, again, weights[-1])
    if len(sizes) < 2:
        raise InvalidParameter(
            "resamples are drawn from mini-batches, and the loader has only one: give it smaller "
            "batches",
            field="loader",
        )
    again /= torch.from_numpy(np.array(sizes) @ np.array(weights)).to(again)[:, None]
    return _mean(squares, totals, sum(sizes)), again


@torch.no_grad()
def _count_batch(squares: SquareSums, totals: Tensors, again: Tensor, weights: Any) -> None:
    """Add the sums of one batch to the totals and, weighted, to each resample; reset them."""
    start = 0
    for name, parameter in squares.parameters.items():
        end = start + parameter.numel()
        if name in totals:
            totals[name] += squares.sums[name]
            batch = squares.sums[name].reshape(-1).to(again)
            for row, weight in zip(again, weights.tolist(), strict=True):
                row[start:end].add_(batch, alpha=weight)
            squares.sums[name].zero_()
        start = end


def _mean(squares: SquareSums, sums: Tensors, count: int) -> Tensor:
    return in_layout_order(
        squares.parameters,
        lambda name: sums.pop(name) / count if name in sums else None,
        "mean squared gradient",
        ": scale the loss down",
        kind="fisher",
    )
