"""``Subspace``: the first directions of a client's samples, of all and of each class.

It is immutable and valid by construction. It is values of data: a reader sees the mean sample of
each class. ``modelkin.core.subspaces.fit`` makes it, ``modelkin.core.codecs.subspace`` knows its
bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs import subspace as codec
from modelkin.core.codecs.checks import Payload
from modelkin.core.subspaces.basis import orthonormal, with_stable_signs
from modelkin.errors import InvalidParameter, InvalidSubspace

__all__ = ["CONSTANT", "MAX_FEATURES", "WHOLE", "Block", "Compare", "Subspace", "Weighting"]

Weighting = Literal["spectrum", "flat"]
Compare = Literal["classes", "whole"]

MAX_FEATURES: Final = codec.MAX_FEATURES
CONSTANT: Final = 0.5
"""The entry behind each unit sample by default, so that x differs from -x.

Larger ones weigh shares of labels more, smaller ones strangers less.
"""
WHOLE: Final = None
"""The label of the block over all samples."""

_WHOLE_CODE: Final = -1
_MAX_LABEL: Final = 2**31 - 1
_MAX_SKEW: Final = 0.01
"""How far products of columns may be from 0 and 1: float16 keeps them within .001."""
_MAX_DRIFT: Final = 1e-3
"""How far a sum of squared weights may be from 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The directions of all samples, or of one class.

    Attributes:
        label: the label of the class, 0 to 2^31 - 1; None for all samples.
        columns: orthonormal, one a row of the array, shape ``(r, m + 1)``; ``(r, m)`` without a
            constant. float32, read-only.
        weights: sigma of each, above 0, descending; shape ``(r,)``, float32, read-only.
    """

    label: int | None
    columns: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """A fingerprint of data.

    Attributes:
        num_features: m, 2 to 65,535.
        constant: the entry that is appended to each unit sample; 0 for none.
        weighting: ``spectrum``: weights are roots of shares of energy; ``flat``: all are equal.
        blocks: the blocks, that of all samples first, then by ascending label.
        epsilon: the privacy loss that the noise allows, with ``delta``; None without noise.
        delta: the probability with which ``epsilon`` may fail; None without noise.

    Raises:
        InvalidSubspace: the blocks do not make a subspace; says which and why.
    """

    num_features: int
    constant: float
    weighting: Weighting
    blocks: tuple[Block, ...]
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        _check_numbers(self)
        blocks = tuple(_check_block(block, self.dimension) for block in self.blocks)
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "constant", float(np.float32(self.constant)))
        _check_labels(blocks)
        _check_weights(blocks, self.weighting)

    @classmethod
    def of_basis(cls, columns: Any, *, constant: float = 0.0) -> Subspace:
        """A flat subspace of any basis made elsewhere.

        Args:
            columns: linearly independent, shape ``(m, d)``; with a constant ``(m + 1, d)``.
            constant: the last row of the columns is its share; 0 for none.

        Raises:
            InvalidSubspace: not such a matrix, not finite, or dependent columns.
        """
        basis = np.asarray(columns)
        if basis.ndim != 2 or basis.dtype.kind not in "fiu" or 0 in basis.shape:
            raise InvalidSubspace("a basis is a matrix of numbers, of shape (features, columns)")
        with np.errstate(invalid="ignore"):  # a NaN that signals is refused like any other
            basis = basis.astype(np.float64)
        if not np.isfinite(basis).all():
            raise InvalidSubspace("the basis has an entry that is not finite")
        rows, count = basis.shape
        if count > rows or np.linalg.matrix_rank(basis) < count:
            raise InvalidSubspace(f"the {count} columns of the basis are not independent")
        basis = with_stable_signs(orthonormal(basis)).astype(np.float32)
        weights = np.full(count, 1.0 / math.sqrt(count), np.float32)
        block = Block(WHOLE, basis.T, weights)
        return cls(rows - bool(constant), constant, "flat", (block,))

    @property
    def dimension(self) -> int:
        """Entries of a column: m, and one for the constant."""
        return self.num_features + bool(self.constant)

    @property
    def num_columns(self) -> int:
        """Columns of all blocks."""
        return sum(block.weights.size for block in self.blocks)

    @property
    def labels(self) -> tuple[int, ...]:
        """The classes that have a block, ascending."""
        return tuple(block.label for block in self.blocks if block.label is not None)

    def of(self, compare: Compare) -> tuple[Block, ...]:
        """The blocks that are compared: those of the classes, or that of all samples."""
        whole = compare == "whole"
        return tuple(block for block in self.blocks if (block.label is WHOLE) == whole)

    def usual_compare(self, other: Subspace) -> Compare:
        """``classes`` where both have any, else ``whole``."""
        return "classes" if self.labels and other.labels else "whole"

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes in float16: 64 hexadecimal digits after ``sha256:``."""
        return f"sha256:{hashlib.sha256(self.to_bytes()).hexdigest()}"

    def to_bytes(self, dtype: Literal["float16", "float32"] = "float16") -> bytes:
        """The native format; float16 moves similarities by less than .001.

        Raises:
            InvalidParameter: another dtype.
        """
        if dtype not in codec.DTYPES:
            raise InvalidParameter("dtype must be float16 or float32", field="dtype")
        labels = [_WHOLE_CODE if each.label is WHOLE else each.label for each in self.blocks]
        arrays = codec.SubspaceArrays(
            self.num_features,
            self.constant,
            self.weighting,
            self.epsilon or 0.0,
            self.delta or 0.0,
            np.array(labels, np.int64),
            np.array([block.weights.size for block in self.blocks], np.int64),
            np.concatenate([block.weights for block in self.blocks]),
            np.concatenate([block.columns for block in self.blocks]),
        )
        return codec.encode(arrays, dtype)

    @classmethod
    def from_bytes(cls, data: Payload, *, max_columns: int | None = None) -> Subspace:
        """A subspace of its native format.

        Args:
            data: the whole payload, not trusted.
            max_columns: the most columns to accept; None for no limit.

        Raises:
            InvalidSubspace: not this format, damaged, or not the values of a subspace.
            PayloadTooLarge: more columns than accepted.
        """
        arrays = codec.decode(data, max_columns=max_columns)
        ends = np.cumsum(arrays.sizes).tolist()
        blocks = tuple(
            Block(
                WHOLE if label == _WHOLE_CODE else label,
                arrays.columns[end - size : end],
                arrays.weights[end - size : end],
            )
            for label, size, end in zip(
                arrays.labels.tolist(), arrays.sizes.tolist(), ends, strict=True
            )
        )
        weighting: Weighting = "flat" if arrays.weighting == "flat" else "spectrum"
        noise = arrays.epsilon or None, arrays.delta or None
        return cls(arrays.num_features, arrays.constant, weighting, blocks, *noise)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subspace):
            return NotImplemented
        return self.to_bytes("float32") == other.to_bytes("float32")

    def __hash__(self) -> int:
        return hash(self.to_bytes("float32"))

    def __repr__(self) -> str:
        noise = "" if self.epsilon is None else f", epsilon={self.epsilon:g}"
        return (
            f"Subspace(num_features={self.num_features}, classes={len(self.labels)}, "
            f"columns={self.num_columns}{noise})"
        )


def _check_numbers(subspace: Subspace) -> None:
    m, constant = subspace.num_features, subspace.constant
    if isinstance(m, bool) or not isinstance(m, int) or not 2 <= m <= MAX_FEATURES:
        raise InvalidSubspace(f"num_features must be 2 to {MAX_FEATURES}, not {m!r}")
    if not 0.0 <= constant <= 100.0:  # false for NaN too
        raise InvalidSubspace(f"constant must be 0 to 100, not {constant!r}")
    if subspace.weighting not in codec.WEIGHTINGS:
        raise InvalidSubspace(f"weighting must be spectrum or flat, not {subspace.weighting!r}")
    epsilon, delta = subspace.epsilon, subspace.delta
    if (epsilon is None) != (delta is None):
        raise InvalidSubspace("epsilon and delta are given together, or neither")
    if epsilon is not None and delta is not None:
        if not (0.0 < epsilon < math.inf and 0.0 < delta < 1.0):
            raise InvalidSubspace(f"epsilon {epsilon!r} and delta {delta!r} promise nothing")
        object.__setattr__(subspace, "epsilon", float(np.float32(epsilon)))
        object.__setattr__(subspace, "delta", float(np.float32(delta)))


def _check_block(block: Block, dimension: int) -> Block:
    columns = np.ascontiguousarray(block.columns, np.float32)
    weights = np.ascontiguousarray(block.weights, np.float32)
    what = _block_name(block.label)
    if columns.ndim != 2 or columns.shape[1] != dimension or weights.shape != columns.shape[:1]:
        raise InvalidSubspace(
            f"{what}: columns of shape (r, {dimension}) and weights of shape (r,) are expected, "
            f"not {columns.shape} and {weights.shape}"
        )
    if not 1 <= columns.shape[0] <= dimension:
        raise InvalidSubspace(f"{what} must have 1 to {dimension} columns, not {columns.shape[0]}")
    if not (np.isfinite(columns).all() and np.isfinite(weights).all()):
        raise InvalidSubspace(f"{what} has an entry that is not finite")
    if not (weights > 0).all() or (np.diff(weights) > 0).any():
        raise InvalidSubspace(f"the weights of {what} must be above 0 and descend")
    # Entries of unit columns are at most 1; larger ones would overflow in their products.
    skew = np.inf if np.abs(columns).max() > 2 else _skew(columns)
    if skew > _MAX_SKEW:
        raise InvalidSubspace(
            f"the columns of {what} are not orthonormal: a product of two is {skew:.3g} off, and "
            f"{_MAX_SKEW:g} is allowed"
        )
    for array in (columns, weights):
        array.flags.writeable = False
    return Block(block.label, columns, weights)


def _skew(columns: npt.NDArray[np.float32]) -> float:
    return float(np.abs(columns @ columns.T - np.eye(columns.shape[0])).max())


def _check_labels(blocks: Sequence[Block]) -> None:
    if not blocks:
        raise InvalidSubspace("a subspace has one block at least")
    for block in blocks:
        known = block.label is WHOLE or (
            isinstance(block.label, int) and 0 <= block.label <= _MAX_LABEL
        )
        if not known or isinstance(block.label, bool):
            raise InvalidSubspace(f"a label is 0 to {_MAX_LABEL}, not {block.label!r}")
    codes = [_WHOLE_CODE if block.label is WHOLE else block.label for block in blocks]
    if any(after <= before for before, after in pairwise(codes)):
        raise InvalidSubspace("blocks must ascend by label, that of all samples first")


def _check_weights(blocks: Iterable[Block], weighting: Weighting) -> None:
    for what, group in (
        ("all samples", [b for b in blocks if b.label is WHOLE]),
        ("the classes", [b for b in blocks if b.label is not WHOLE]),
    ):
        if not group:
            continue
        weights = np.concatenate([block.weights for block in group]).astype(np.float64)
        total = float((weights**2).sum())
        if abs(total - 1.0) > _MAX_DRIFT:
            raise InvalidSubspace(
                f"the squared weights of {what} must sum to 1, and they sum to {total:.6g}"
            )
        if weighting == "flat" and np.ptp(weights) > _MAX_DRIFT:
            raise InvalidSubspace(f"the weights of {what} must be equal: the weighting is flat")


def _block_name(label: int | None) -> str:
    return "the block of all samples" if label is WHOLE else f"the block of class {label}"
