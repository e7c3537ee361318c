"""The stretches of a checkpoint's tensors that a layout has, whatever their names there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.layout import TensorSpec
from modelkin.core.matching.correspondence import Correspondence
from modelkin.core.matching.search import Piece

__all__ = ["pieces", "pieces_by_tensor"]


def pieces(tensors: Sequence[StoredTensor], found: Correspondence) -> Iterator[StoredTensor]:
    """Yield the common pieces, in the order of the target, each with a name of its own.

    Args:
        tensors: those of the source, in its order.
        found: the correspondence of their layout and another one.
    """
    return (_piece(tensors[piece.source], piece, found) for piece in found.pieces)


def pieces_by_tensor(
    tensors: Sequence[StoredTensor], found: Correspondence
) -> Iterator[tuple[TensorSpec, list[StoredTensor]]]:
    """Yield the tensors of the target with their pieces; arguments are those of :func:`pieces`."""
    for at, group in groupby(found.pieces, key=lambda piece: piece.target):
        yield (
            found.target.tensors[at],
            [_piece(tensors[piece.source], piece, found) for piece in group],
        )


def _piece(tensor: StoredTensor, piece: Piece, found: Correspondence) -> StoredTensor:
    if piece.shape == tensor.shape:
        return tensor
    # Several pieces of one tensor take the names of the tensors that they are in the target.
    stacked = len(piece.shape) != len(tensor.shape)
    name = found.target.tensors[piece.target].name if stacked else tensor.name
    return tensor.piece(name, piece.source_offset, piece.shape)
