"""How much each parameter matters to a model's data: the importance that supports are chosen from.

It owns exact per-sample gradients and their sums within a memory bound. It never trains, never
touches the model's mode, gradients or buffers, and never chooses a support: that is
``modelkin.select_support``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.torch.batches import batches, rows_of
from modelkin.torch.gradients import Forward, LossFunction, SampleGradients, Tensors
from modelkin.torch.independence import refuse_known_modules
from modelkin.torch.layout import parameters_of

__all__ = ["fisher_importance"]

PIECE = 2**20
"""Squares are summed in float64 this many elements at a time: 8 MiB, which an allocator hands out
again and again, where larger pieces would be fresh pages from the system each time."""


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

    Every gradient is one sample's own (not a mini-batch's, squared), at the weights the model has
    now. Squares are summed in float64, so neither batch size nor chunking changes the result beyond
    the rounding of the gradients. The model is left as it is: its mode, its ``.grad`` and its
    buffers; the caller's ``no_grad`` or ``inference_mode`` does not matter.

    Args:
        model: in the mode its gradients are wanted in, nearly always after ``model.eval()``.
        loss_fn: called as ``loss_fn(output, target)`` on batches of one, gives one number: any
            torch loss with its default reduction. Parameters of its own are not counted.
        loader: yields ``(input, target)`` pairs, as ``torch.utils.data.DataLoader`` does. Each of
            the two is a tensor of shape ``(n, ...)``, samples first, or tuples, lists and dicts of
            such tensors; they are moved to the model's device.
        forward: ``forward(model, input)`` in place of ``model(input)``, for instance
            ``lambda model, batch: model(**batch).logits``.
        max_memory: bytes that the per-sample gradients may take, at least one sample at a time: as
            many samples go together as ``samples * trainable parameters * bytes of one`` allows, at
            most a batch. What the forward and backward pass of these samples needs, and 12 bytes a
            parameter for the sums and the result, come on top.
        vectorize: whether samples go together through ``torch.func.vmap``. False takes them one by
            one through plain autograd: the same result, slower, for models vmap cannot trace.

    Returns:
        float32 of shape ``(M,)`` on the device of the model's first parameter, in the order of
        ``layout_of(model)``; exactly 0 for frozen parameters (``requires_grad=False``) and for
        those the loss does not depend on.

    Raises:
        InvalidParameter: the model mixes samples (batch normalisation in training mode, for one) or
            is random (dropout in training mode); vmap cannot trace it; no parameter is trainable;
            the loader is empty or yields something else than pairs; the loss is not one number; an
            argument is out of range.
        InvalidImportance: a gradient is NaN or infinite, or its square too large for float32.
        InvalidLayout: as :func:`layout_of`.

    Source: the empirical Fisher of the Index-Overlap Similarity paper (Background, and Importance
    accumulation).
    """
    parameters = parameters_of(model)
    trainable = _trainable(parameters)
    chunk = _chunk_size(trainable, max_memory)
    refuse_known_modules(model)
    samples = SampleGradients(model, loss_fn, forward, trainable, vectorize)
    sums = {
        name: torch.zeros_like(p, dtype=_wide(p), requires_grad=False)
        for name, p in trainable.items()
    }
    device = next(iter(parameters.values())).device
    count = 0
    for position, (inputs, targets, n) in enumerate(batches(loader, device)):
        if position == 0:
            samples.probe(inputs, targets)
        for start in range(0, n, chunk):
            part = slice(start, start + chunk)
            for gradients in samples.of(rows_of(inputs, part), rows_of(targets, part)):
                for name, total in sums.items():
                    _add_squares(total, gradients.pop(name))
        count += n
        _check_finite(sums, f"in samples {count - n} to {count - 1} of the loader")
    if count == 0:
        raise InvalidParameter(
            "the loader is empty: importance needs at least one sample", field="loader"
        )
    return _mean(sums, parameters, count, device)


def _trainable(parameters: dict[str, nn.Parameter]) -> Tensors:
    trainable: Tensors = {name: p for name, p in parameters.items() if p.requires_grad}
    if not trainable:
        raise InvalidParameter(
            "every parameter of the model is frozen (requires_grad=False)", field="model"
        )
    for name, p in trainable.items():
        if not p.is_floating_point():
            raise InvalidParameter(
                f"parameter {name!r} is {p.dtype}: importance needs real floating-point parameters",
                field="model",
            )
    return trainable


def _chunk_size(trainable: Tensors, max_memory: int) -> int:
    try:
        limit = operator.index(max_memory)
    except TypeError:
        limit = 0
    if limit < 1 or isinstance(max_memory, bool):
        raise InvalidParameter(
            f"max_memory must be a positive number of bytes, not {max_memory!r}", field="max_memory"
        )
    one_sample = sum(p.numel() * p.element_size() for p in trainable.values())
    return max(1, limit // max(1, one_sample))


def _wide(tensor: Tensor) -> torch.dtype:
    """The dtype of sums: float64, except on Apple's GPUs, which have none."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


@torch.no_grad()
def _add_squares(total: Tensor, gradients: Tensor) -> None:
    """``total += (gradients ** 2).sum(0)`` in the precision of ``total``, piece by piece."""
    flat, into = gradients.reshape(len(gradients), -1), total.view(-1)
    for rows in torch.split(flat, max(1, PIECE // max(1, flat.shape[1]))):
        pieces = zip(torch.split(rows, PIECE, dim=1), torch.split(into, PIECE), strict=True)
        for piece, target in pieces:
            target += piece.to(total.dtype).square_().sum(0)


def _check_finite(sums: Tensors, where: str) -> None:
    if bool(torch.isfinite(torch.stack([total.sum().cpu() for total in sums.values()])).all()):
        return
    name = next(name for name, total in sums.items() if not bool(torch.isfinite(total).all()))
    raise InvalidImportance(
        f"the gradient of {name!r} is NaN or infinite {where}: look at the loss of those samples",
        field="model",
    )


@torch.no_grad()
def _mean(
    sums: Tensors, parameters: dict[str, nn.Parameter], count: int, device: torch.device
) -> Tensor:
    importance = torch.zeros(
        sum(p.numel() for p in parameters.values()), dtype=torch.float32, device=device
    )
    start = 0
    for name, parameter in parameters.items():
        end = start + parameter.numel()
        if name in sums:
            importance[start:end] = (sums.pop(name) / count).reshape(-1)
            if not bool(torch.isfinite(importance[start:end]).all()):
                raise InvalidImportance(
                    f"the mean squared gradient of {name!r} is beyond float32: scale the loss down",
                    field="model",
                )
        start = end
    return importance
