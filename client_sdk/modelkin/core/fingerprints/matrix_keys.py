"""The keys of a matrix's rows and columns, of which no more than a stretch is in memory.

The first reading has the scales of all places, and a sample that tells tables from weights. The
second one has the keys. Matrices of more than some hundred million values are read again for the
keys of further columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.columns import ColumnKeys, groups_of_columns, guesses_of_bounds
from modelkin.core.fingerprints.lines import Keys, members_of_key, size_of_set, walk
from modelkin.core.fingerprints.matrices import Matrix
from modelkin.core.fingerprints.scales import PlaceScales
from modelkin.core.fingerprints.tables import LineSample, has_few_values, is_structured
from modelkin.core.fingerprints.tensor_signatures import SignatureMaker
from modelkin.core.kernels.choice import kernels

__all__ = ["MatrixKeys", "MatrixReading", "line_keys"]

Floats = npt.NDArray[np.float32]


class MatrixReading(Protocol):
    """A way to the keys of a matrix, see :class:`MatrixKeys`; others lie on devices."""

    is_finite: bool

    @property
    def is_structured(self) -> bool: ...

    @property
    def has_few_values(self) -> bool: ...

    def read(self, signature: SignatureMaker, first: int) -> tuple[Keys, Keys]: ...


class MatrixKeys:
    """What the first reading of a matrix says, and the way to its keys.

    Args:
        matrix: it has no side below 64.
        took: is called with half the values of each stretch that either reading takes.

    Attributes:
        is_finite: whether all values are. Where they are not, nothing else is known.
    """

    def __init__(self, matrix: Matrix, took: Callable[[int], None] = lambda _: None) -> None:
        self._matrix, self._took = matrix, took
        self._sample = LineSample(matrix.rows, matrix.columns)
        self._scales = PlaceScales(matrix.rows, matrix.columns)
        self.is_finite = True
        for begin, values in matrix.stretches():
            if not np.isfinite(values).all():
                self.is_finite = False
                return
            self._sample.add(begin, values)
            self._scales.add(begin, values)
            took(values.size // 2)

    @property
    def is_structured(self) -> bool:
        """Whether it is a table that no training made."""
        return is_structured(self._sample)

    @property
    def has_few_values(self) -> bool:
        """Whether the largest magnitudes of its lines cannot be told apart."""
        return has_few_values(self._sample)

    def read(self, signature: SignatureMaker | None = None, first: int = 0) -> tuple[Keys, Keys]:
        """Read the keys of its rows, and those of its columns.

        Args:
            signature: takes the members of the rows' sets.
            first: the place of the matrix's first value among those of the signature.
        """
        rows = _no_keys(self._matrix.rows, self._scales.of_rows)
        columns = _no_keys(self._matrix.columns, self._scales.of_columns)
        guesses = guesses_of_bounds(self._sample, self._scales)
        waiting = groups_of_columns(np.arange(self._matrix.columns), self._matrix.rows)
        for numbers in waiting:
            group = ColumnKeys(numbers, columns.scales, guesses[numbers])
            for begin, values in self._matrix.stretches():
                group.take(begin, values)
                if numbers is waiting[0]:
                    _take_rows(begin, values, rows, signature, first)
                    self._took(values.size - values.size // 2)
                else:
                    self._took(0)
            found, too_few = group.finish()
            columns.keys[numbers], columns.least[numbers] = found
            missed = numbers[too_few & (guesses[numbers] > 0)]
            guesses[missed] = 0
            waiting.extend(groups_of_columns(missed, self._matrix.rows))
        return rows, columns


def line_keys(matrix: Floats) -> tuple[Keys, Keys]:
    """The keys of a matrix's rows, and those of its columns.

    Args:
        matrix: finite, shape ``(rows, columns)``, no side below 64.
    """
    return MatrixKeys(Matrix.of(matrix)).read()


def _no_keys(lines: int, scales: Floats) -> Keys:
    return Keys(np.zeros(lines, np.uint64), np.zeros(lines, np.float32), scales)


def _take_rows(
    begin: int, values: Floats, rows: Keys, signature: SignatureMaker | None, first: int
) -> None:
    length = values.shape[1]
    found, least = kernels().line_keys(
        values, rows.scales, walk(length), size_of_set(length), members_of_key(length)
    )
    end = begin + len(values)
    rows.keys[begin:end], rows.least[begin:end] = found, least
    if signature is not None:
        at = first + begin * length
        signature.take(kernels().members_of_sets(values, rows.scales, least, at))
