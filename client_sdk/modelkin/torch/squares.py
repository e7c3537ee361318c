"""Sums of squared per-sample gradients over a loader, in float64 and within a memory bound.

``gradients`` computes the gradients, ``importance`` uses the sums.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.torch.batches import batches, rows_of
from modelkin.torch.gradients import Forward, LossFunction, SampleGradients, Tensors
from modelkin.torch.independence import refuse_known_modules
from modelkin.torch.vector import readable_parameters, trainable_of

__all__ = ["SquareSums", "chunk_size"]

PIECE_SIZE = 2**20
"""The number of elements squared and summed in float64 at a time: 8 MiB. Allocators reuse pieces of
this size; larger ones would be new pages from the system each time."""


class SquareSums:
    """A pass over a loader, and its sums by trainable parameter.

    Attributes:
        parameters: the model's parameters, in layout order.
        sums: the sums of squares so far, float64 of the parameter's shape (float32 on Apple's
            GPUs, which have no float64); the caller may reset them to zero between batches.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        *,
        forward: Forward | None,
        max_memory: int,
        vectorize: bool,
    ) -> None:
        """Take the arguments of ``fisher_importance``, and raise the same errors."""
        if not callable(loss_fn):
            raise InvalidParameter(
                f"loss_fn is called with an output and a target, such as torch.nn."
                f"CrossEntropyLoss(), and {type(loss_fn).__name__} is not",
                field="loss_fn",
            )
        self.parameters = readable_parameters(model)
        trainable = trainable_of(self.parameters)
        self._chunk = chunk_size(trainable, max_memory)
        self._max_memory = max_memory
        refuse_known_modules(model)
        self._samples = SampleGradients(model, loss_fn, forward, dict(trainable), vectorize)
        with self._explaining_out_of_memory(0):
            self.sums = {
                name: torch.zeros_like(p, dtype=_wide(p), requires_grad=False)
                for name, p in trainable.items()
            }

    def batches(self, loader: Iterable[Any]) -> Iterator[int]:
        """Add the batches of a loader; yield the number of samples after each batch.

        Raises:
            InvalidParameter: the loader is empty or does not yield pairs of samples, the model or
                the loss have no per-sample gradients, or memory runs out.
            InvalidImportance: a gradient is NaN or infinite.
        """
        count, device = 0, next(iter(self.parameters.values())).device
        for inputs, targets, n in batches(loader, device):
            with self._explaining_out_of_memory(min(n, self._chunk)):
                if count == 0:
                    self._samples.probe(inputs, targets)
                self._add(inputs, targets, n)
            count += n
            _check_finite(self.sums, f"in samples {count - n} to {count - 1} of the loader")
            yield n
        if count == 0:
            raise InvalidParameter(
                "the loader is empty: importance needs at least one sample", field="loader"
            )

    def _add(self, inputs: Any, targets: Any, n: int) -> None:
        for start in range(0, n, self._chunk):
            part = slice(start, start + self._chunk)
            for gradients in self._samples.of(rows_of(inputs, part), rows_of(targets, part)):
                for name, total in self.sums.items():
                    add_squares(total, gradients.pop(name))

    @contextmanager
    def _explaining_out_of_memory(self, together: int) -> Iterator[None]:
        """Turn an out-of-memory error of the device into one that names the setting."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise _out_of_memory(together, self._max_memory, self.parameters) from error


def _out_of_memory(
    together: int, max_memory: int, parameters: Mapping[str, nn.Parameter]
) -> InvalidParameter:
    size = sum(p.numel() for p in parameters.values())
    if together > 1:
        remedy = (
            f"{together} samples ran together within max_memory={max_memory}: pass a smaller one, "
            f"max_memory={max(1, max_memory // 4)}, or smaller batches"
        )
    elif together == 1:
        remedy = (
            "one sample alone is too much: pass vectorize=False, which needs less memory, or "
            "shorter inputs, or move the model to the CPU"
        )
    else:
        remedy = (
            f"the sums and the result take 12 bytes for each of {size} parameters: free memory, or "
            f"move the model to the CPU"
        )
    return InvalidParameter(f"the device is out of memory: {remedy}", field="max_memory")


def chunk_size(trainable: Mapping[str, Tensor], max_memory: Any) -> int:
    """The number of samples whose gradients fit in ``max_memory`` bytes, at least one.

    Raises:
        InvalidParameter: ``max_memory`` is not a number of bytes.
    """
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
    return torch.float32 if tensor.device.type == "mps" else torch.float64


@torch.no_grad()
def add_squares(total: Tensor, gradients: Tensor) -> None:
    """``total += (gradients ** 2).sum(0)`` in the precision of ``total``, piece by piece."""
    flat, into = gradients.reshape(len(gradients), -1), total.view(-1)
    for rows in torch.split(flat, max(1, PIECE_SIZE // max(1, flat.shape[1]))):
        pieces = zip(
            torch.split(rows, PIECE_SIZE, dim=1), torch.split(into, PIECE_SIZE), strict=True
        )
        for piece, target in pieces:
            target += piece.to(total.dtype).square_().sum(0)


def _check_finite(sums: Tensors, where: str) -> None:
    if bool(torch.isfinite(torch.stack([total.sum().cpu() for total in sums.values()])).all()):
        return
    name = next(name for name, total in sums.items() if not bool(torch.isfinite(total).all()))
    raise InvalidImportance(
        f"the gradient of {name!r} is NaN or infinite {where}: check the loss of those samples",
        field="model",
    )
