"""Checks of the shapes and types of parts, and the grids that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from modelkin.checkpoints.dtypes import FLOATS
from modelkin.checkpoints.quantised.contents import refuse
from modelkin.checkpoints.quantised.grids import Blocks, Grid, Stacked
from modelkin.checkpoints.quantised.matrices import NUMBERS, Stored
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint

__all__ = [
    "MAX_DIMENSIONS",
    "block_size",
    "grid_over",
    "require",
    "require_floats",
    "unfit",
]

MAX_DIMENSIONS: Final = 8
_USUAL: Final = (128, 64, 32, 16, 256, 512, 1024)
"""Sizes of blocks, the commonest first."""
_DAMAGED: Final = "get the file again, or give the checkpoint before quantisation"


def require(tensor: StoredTensor, dtypes: Iterable[str], dimensions: Iterable[int]) -> None:
    """Require a type and a number of dimensions of a part."""
    if tensor.dtype not in dtypes or len(tensor.shape) not in dimensions:
        raise refuse(
            tensor,
            f"it is {tensor.dtype} of shape {quote(tensor.shape)}, and has another with this name",
            _DAMAGED,
        )


def require_floats(tensor: StoredTensor, dimensions: Iterable[int] = (1, 2)) -> None:
    """Require floats."""
    require(tensor, FLOATS, dimensions)


def unfit(tensor: StoredTensor, other: StoredTensor) -> InvalidCheckpoint:
    """The error that two parts do not fit."""
    return refuse(
        tensor,
        f"its shape {quote(list(tensor.shape))} does not fit that of {quote(other.name)}, "
        f"{quote(list(other.shape))}",
        _DAMAGED,
    )


def block_size(size: int, count: int, stated: int | None = None) -> int | None:
    """The size of blocks of which ``count`` make ``size``; None where no size is likely."""
    if not size or not count:
        return None
    if count == 1:
        return size
    if count == size:
        return 1
    for block in (stated, *_USUAL):
        if block and -(-size // block) == count:
            return block
    return size // count if size % count == 0 else None


def grid_over(
    shape: tuple[int, ...],
    scale: StoredTensor,
    codes: StoredTensor,
    stated: tuple[int | None, int | None] = (None, None),
    dtype: str | None = None,
    *,
    merge: bool = True,
) -> tuple[int, Grid]:
    """The width of the matrix that a tensor is, and the grid of its scales over it.

    Args:
        shape: of the tensor.
        scale: one for the tensor; or one for each row, column or block, with as many dimensions as
            the tensor; or with fewer, one for each entry of the first ones.
        codes: the tensor's codes, for errors.
        stated: the rows and the columns of a block, if they are known.
        dtype: the type that the scale is read as.
        merge: whether the last dimensions are one where one scale counts for them.

    Raises:
        InvalidCheckpoint: the shapes do not fit.
    """
    over = () if scale.size == 1 else scale.shape
    known = scale.dtype in NUMBERS and len(over) <= len(shape) <= MAX_DIMENSIONS
    if not known or (len(over) < len(shape) and over != shape[: len(over)]):
        raise unfit(scale, codes)
    over += (1,) * (len(shape) - len(over))
    axes = [*zip(shape, over, strict=True)] or [(1, 1)]
    while merge and len(axes) > 1 and axes[-1][1] == axes[-2][1] == 1:
        axes[-2:] = [(axes[-2][0] * axes[-1][0], 1)]
    *lead, (width, across) = axes
    columns = block_size(width, across, stated[1])
    rows = _rows(lead, stated[0])
    if columns is None or rows is None:
        raise unfit(scale, codes)
    return width, Grid(Stored(scale, across, dtype), rows, Blocks(columns))


def _rows(lead: list[tuple[int, int]], stated: int | None) -> Blocks | Stacked | None:
    """How rows share scales, by the sizes and counts of their dimensions; None if they do not."""
    if all(count == 1 for _, count in lead):
        return Blocks(max(prod(size for size, _ in lead), 1))
    (height, count) = lead[-1]
    block = block_size(height, count, stated)
    if block is None or any(size != count for size, count in lead[:-1]):
        return None
    return Blocks(block) if height % block == 0 else Stacked(height, block, count)
