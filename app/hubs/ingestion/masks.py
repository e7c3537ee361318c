"""Causal masks and one-hot tables among the tensors of a checkpoint: tables of two values.

Their entries are larger than any weight, so that a support of a tenth of the parameters may hold
nothing else. No training leaves two values in rows that repeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from modelkin.checkpoints.adapters import LowRankTensor
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.similarity.regularity import is_regular

__all__ = ["tables_of_two_values"]

_MIN_SIZE: Final = 1024
_FIRST, _MORE = 256, 1 << 16
"""Entries that are read first: nearly all tensors have more than two values among them."""


def tables_of_two_values(tensors: Iterable[StoredTensor]) -> tuple[str, ...]:
    """The names of the tensors that hold two values, regularly laid out.

    Raises:
        InvalidCheckpoint: a file ends early.
        OSError: a file cannot be read.
    """
    return tuple(tensor.name for tensor in tensors if _is_table(tensor))


def _is_table(tensor: StoredTensor) -> bool:
    if tensor.size < _MIN_SIZE or isinstance(tensor, LowRankTensor):
        return False
    if np.unique(tensor.part(0, _FIRST)).size > 2:
        return False
    begun = tensor.part(0, min(tensor.size, _MORE))
    values = np.unique(begun)
    if values.size != 2 or not is_regular(begun == values[1], tensor.shape):
        return False
    return all(np.isin(stretch, values).all() for stretch in tensor.stretches())
