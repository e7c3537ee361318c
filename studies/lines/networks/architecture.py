"""An architecture: how it is built and trained, and which of its tensors can be changed how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

__all__ = ["Architecture", "Batch"]

Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class Architecture:
    """A kind of network and its task.

    Attributes:
        name: of its cell.
        about: what it is, for the page.
        build: the network with random weights; takes the sizes that are changed, such as
            ``tokens``, ``depth`` and ``hidden``.
        batch: of a generator, and of whether it is from the other half of the data.
        loss: of a network and a batch.
        steps: that its base is trained for, and a child of its initial weights.
        rate: the learning rate of the base.
        base_batches: of so many batches at once each step of the base is.
        stranger_steps: that a stranger is trained for, where these are fewer.
        depth: the layers that it has, where they can be dropped and repeated; else 0.
        layers: a pattern that finds the number of a layer in the name of a tensor.
        tokens: ends of the names of tensors with a row for each token.
        head: ends of the names of tensors that a new task replaces.
        rows_of_units: ends of the names of tensors with a row for each hidden unit.
        columns_of_units: ends of those with a column for each.
        hidden: the hidden units of a layer.
        has_adapters: whether low-rank adapters fit: it has linear layers that are called.
    """

    name: str
    about: str
    build: Callable[..., nn.Module]
    batch: Callable[[np.random.Generator, bool], Batch]
    loss: Callable[[Any, Batch], Tensor]
    steps: int = 200
    rate: float = 1e-3
    base_batches: int = 1
    stranger_steps: int = 0
    depth: int = 0
    layers: str = ""
    tokens: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows_of_units: tuple[str, ...] = ()
    columns_of_units: tuple[str, ...] = ()
    hidden: int = 0
    has_adapters: bool = True
