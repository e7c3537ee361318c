"""The lines of a tensor: their keys, or why it has none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.lines import Keys
from modelkin.core.fingerprints.matrices import STRETCH, Part, matrices, sides
from modelkin.core.fingerprints.matrix_keys import MatrixKeys, MatrixReading
from modelkin.core.fingerprints.tensor_signatures import SignatureMaker
from modelkin.core.fingerprints.tensors import NotComparable
from modelkin.core.quoting import quote
from modelkin.errors import InvalidImportance

__all__ = ["LinesMaker", "TensorLines", "Took", "lines_of", "read_lines"]

Took = Callable[[int], None]
"""A function of how many values were read since it was called before."""

_MOST_REPEATED: Final = 8
"""How often a tensor may repeat a line, as with experts of one origin; beyond, it has no key."""


@dataclass(frozen=True, eq=False)
class TensorLines:
    """All keys of a tensor, before a sample is taken.

    Attributes:
        shape: of the tensor.
        keys: by the length of the lines; distinct, ascending. Empty where it has none.
        reason: why it has none; None where it has.
        signature: as of :class:`LinesOfTensor`.
    """

    shape: tuple[int, ...]
    keys: Mapping[int, npt.NDArray[np.uint64]]
    reason: NotComparable | None
    signature: bytes | None

    @property
    def identity(self) -> bytes:
        """A digest that tensors of the same shape and lines have in common."""
        digest = hashlib.blake2b(repr(self.shape).encode(), digest_size=16)
        for length, keys in self.keys.items():
            digest.update(length.to_bytes(8, "little") + keys.tobytes())
        return digest.digest()


class LinesMaker:
    """The lines of a tensor in the making: takes its matrices in their order.

    Args:
        name: of the tensor, for what is said of it.
        shape: likewise.
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.signature = SignatureMaker(prod(shape))
        self._name, self._shape, self._read = name, shape, 0
        self._rows, self._columns = list[Keys](), list[Keys]()
        self._reason = NotComparable.SHORT

    def read(self, each: MatrixReading) -> None:
        """Read the next matrix.

        Raises:
            InvalidImportance: a value of it is NaN or infinite, also as a float32.
        """
        if not each.is_finite:
            raise InvalidImportance(
                f"tensor {quote(self._name)} has values that are NaN or infinite: leave it out, or "
                f"mend it",
                field=self._name,
            )
        if each.is_structured:
            self._reason = NotComparable.STRUCTURED
        elif each.has_few_values:
            self._reason = NotComparable.FEW_VALUES
        else:
            self._reason = NotComparable.NO_KEYS
            rows, columns = each.read(self.signature, self._read)
            self._rows.append(rows)
            self._columns.append(columns)
        self._read += prod(sides(self._shape))

    def finish(self) -> TensorLines:
        """The lines of all matrices that were taken."""
        height, width = sides(self._shape)
        found = dict[int, npt.NDArray[np.uint64]]()
        for length, parts in ((width, self._rows), (height, self._columns)):
            kept = _not_repeated(parts)
            if kept.size:
                found[length] = np.union1d(found.get(length, kept[:0]), kept)
        if not found:
            return TensorLines(self._shape, {}, self._reason, None)
        return TensorLines(self._shape, found, None, self.signature.finish())


def read_lines(
    name: str,
    shape: tuple[int, ...],
    part: Part,
    took: Took = lambda _: None,
    stretch: int = STRETCH,
) -> TensorLines:
    """Read the lines of a tensor, in little memory: its values twice, a stretch at a time.

    Args:
        name: of the tensor, for what is said of it.
        shape: of the tensor.
        part: reads its values.
        took: is called while they are read, and ends it by what it raises. It counts each value
            that is read twice once, and others less.
        stretch: how many values are read at a time.

    Raises:
        InvalidImportance: a value of a matrix is NaN or infinite, also as a float32.
    """
    readings = (MatrixKeys(matrix, took) for matrix in matrices(shape, part, stretch))
    return lines_of(name, shape, readings)


def lines_of(name: str, shape: tuple[int, ...], readings: Iterable[MatrixReading]) -> TensorLines:
    """The lines of a tensor whose matrices are read in some way.

    Args:
        name: as of :func:`read_lines`, also for ``shape``.
        readings: of each matrix, in their order; each begins when it is asked for.

    Raises:
        InvalidImportance: as for :func:`read_lines`.
    """
    maker = LinesMaker(name, shape)
    for each in readings:
        maker.read(each)
    return maker.finish()


def _not_repeated(parts: list[Keys]) -> npt.NDArray[np.uint64]:
    """One of each key of a tensor, but for those of lines that it repeats many times."""
    keys = np.concatenate([np.zeros(0, np.uint64), *(part.keys[part.has] for part in parts)])
    distinct, counts = np.unique(keys, return_counts=True)
    return distinct[counts <= _MOST_REPEATED]
