"""``LargestEntries``: a selection from an importance that is read once, its parts in any order.

``streaming`` keeps histograms and reads the importance two or three times. Where reading is dear,
as over a network, this keeps the entries themselves: memory for half as many again as are asked
for, whatever M. The result equals ``select_support``'s, bit for bit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import IndexArray, index_dtype
from modelkin.core.support import Support
from modelkin.errors import InvalidImportance, InvalidParameter

__all__ = ["LargestEntries"]

_LEAST_ROOM: Final = 1 << 20
"""Entries that are gathered at least before the smaller ones are dropped."""
_LEAST_PART: Final = 1 << 16
"""Entries that are looked at together, unless fewer are left."""


class LargestEntries:
    """The largest positive entries of an importance; of equal ones those of the lowest indices.

    Args:
        num_parameters: M.
        most: the most entries that may be asked for.
    """

    def __init__(self, num_parameters: int, most: int) -> None:
        self._num_parameters = num_parameters
        self._most = min(most, num_parameters)
        room = min(num_parameters, self._most + max(self._most // 2, _LEAST_ROOM))
        self._bits = np.empty(room, np.uint32)
        self._indices = np.empty(room, index_dtype(num_parameters))
        self._filled = 0
        # An entry counts if its bits are above the floor, or equal it below the index `tie`.
        self._floor, self._tie = 0, 0

    @property
    def num_parameters(self) -> int:
        """M, the length of the importance."""
        return self._num_parameters

    @property
    def most(self) -> int:
        """The most indices that a support of them may have."""
        return self._most

    def add(self, begin: int, values: npt.NDArray[np.float32]) -> None:
        """Take part of the importance; no entry is given twice.

        Args:
            begin: the index of its first entry.
            values: finite and not negative, shape ``(n,)``.
        """
        at = 0
        while at < values.size:
            left = values.size - at
            if self._bits.size - self._filled < min(left, _LEAST_PART):
                self._drop(self._most)
            part = values[at : at + self._bits.size - self._filled]
            self._take(begin + at, part.view(np.uint32))
            at += part.size

    def support(self, k: int | None = None) -> Support:
        """The support of the ``k`` largest entries, or of all positive ones where they are fewer.

        Args:
            k: at most ``most``, which is the default.

        Raises:
            InvalidImportance: no entry is positive.
        """
        k = self._most if k is None else min(k, self._num_parameters)
        if not 1 <= k <= self._most:
            raise InvalidParameter(f"k must be 1 to {self._most}, not {k}", field="k")
        if not self._filled:
            raise InvalidImportance(
                f"all {self._num_parameters} entries of the importance are zero, and a support "
                f"takes only positive ones",
                field="importance",
            )
        kept = self._kept(min(k, self._filled))
        indices: IndexArray = self._indices[: self._filled][kept]
        indices.sort()
        return Support.trusted(indices, self._num_parameters)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """All that :meth:`restore` needs to go on, in arrays that ``numpy.savez`` takes."""
        if self._filled > self._most:
            self._drop(self._most)
        return {
            "bits": self._bits[: self._filled],
            "indices": self._indices[: self._filled],
            "bound": np.array([self._floor, self._tie], np.uint64),
        }

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from a :meth:`state` of the same M and most."""
        self._filled = state["bits"].size
        self._bits[: self._filled] = state["bits"]
        self._indices[: self._filled] = state["indices"]
        self._floor, self._tie = (int(value) for value in state["bound"])

    def _take(self, begin: int, bits: npt.NDArray[np.uint32]) -> None:
        """Append the entries of a part that may be among the largest; there is room for all."""
        found = np.flatnonzero(bits > self._floor)
        if begin < self._tie:
            ties = np.flatnonzero(bits[: self._tie - begin] == self._floor)
            found = np.concatenate([found, ties])
        end = self._filled + found.size
        self._bits[self._filled : end] = bits[found]
        self._indices[self._filled : end] = found
        self._indices[self._filled : end] += self._indices.dtype.type(begin)
        self._filled = end

    def _drop(self, k: int) -> None:
        """Keep the ``k`` largest entries alone, in the order that they have."""
        kept = self._kept(k)
        bits = self._bits[: self._filled][kept]
        indices = self._indices[: self._filled][kept]
        self._filled = k
        self._bits[:k], self._indices[:k] = bits, indices
        self._floor = int(bits.min())
        self._tie = int(indices[bits == self._floor].max())

    def _kept(self, k: int) -> npt.NDArray[np.bool_]:
        """Which of the gathered entries are the ``k`` largest; ``k`` are gathered at least."""
        bits, indices = self._bits[: self._filled], self._indices[: self._filled]
        last = np.partition(bits, self._filled - k)[self._filled - k]
        kept: npt.NDArray[np.bool_] = bits > last
        equal = bits == last
        wanted = k - int(np.count_nonzero(kept))
        if wanted < np.count_nonzero(equal):
            equal &= indices <= np.partition(indices[equal], wanted - 1)[wanted - 1]
        return np.asarray(kept | equal)
