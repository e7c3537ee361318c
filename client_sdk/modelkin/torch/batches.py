"""Batches of samples from a loader: checked, moved to the model's device, and sliced.

A batch is any nesting of tensors whose first dimension is the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from modelkin.errors import InvalidParameter
from modelkin.torch.trees import leaves_of, map_leaves

__all__ = ["batch_of_one", "batches", "description", "rows_of"]


def batches(loader: Iterable[Any], device: torch.device) -> Iterator[tuple[Any, Any, int]]:
    """The loader's non-empty batches on the device, each with its number of samples."""
    for position, batch in enumerate(loader):
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise InvalidParameter(
                f"the loader must yield (input, target) pairs, item {position} is "
                f"{description(batch)}; pass a single pair as [(input, target)]",
                field="loader",
            )
        sizes = {_samples_in(leaf, position) for leaf in leaves_of(tuple(batch))}
        if len(sizes) != 1:
            raise InvalidParameter(
                f"tensors of batch {position} have different numbers of samples: {sorted(sizes)}; "
                f"samples come first, in the first dimension of each",
                field="loader",
            )
        n = sizes.pop()
        if n:
            inputs, targets = map_leaves(lambda leaf: _move(leaf, device), tuple(batch))
            yield inputs, targets, n


def _samples_in(leaf: Any, position: int) -> int:
    if not isinstance(leaf, Tensor) or leaf.dim() == 0:
        raise InvalidParameter(
            f"batch {position} holds {description(leaf)}; inputs and targets are tensors whose "
            f"first dimension is the samples",
            field="loader",
        )
    return len(leaf)


def description(value: Any) -> str:
    """A description for an error: a tensor by its shape, any other value by its type."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}" + (
        f" of {len(value)}" if isinstance(value, (tuple, list)) else ""
    )


def _move(leaf: Tensor, device: torch.device) -> Tensor:
    """The leaf on the device; a copy if inference mode made it, which autograd cannot use."""
    moved = leaf.detach().to(device)
    return moved.clone() if moved.is_inference() else moved


def rows_of(tree: Any, part: slice) -> Any:
    """A slice of the samples of a batch."""
    return map_leaves(lambda leaf: leaf[part], tree)


def batch_of_one(tree: Any) -> Any:
    """One sample, ``(...)``, as a batch, ``(1, ...)``."""
    return map_leaves(lambda leaf: leaf.unsqueeze(0), tree)
