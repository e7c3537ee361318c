"""``LargestEntries``: a selection from an importance that is read once, its parts in any order.

``streaming`` keeps histograms and reads the importance two or three times. Where reading is dear,
as over a network, this keeps the entries themselves: memory for half as many again as are asked
for, whatever M. The result equals ``select_support``'s, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import IndexArray, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.selection.radix import locate_count
from modelkin.core.support import Support
from modelkin.errors import InvalidImportance, InvalidParameter

__all__ = ["LargestEntries"]

_LEAST_ROOM: Final = 1 << 20
"""Entries that are gathered at least before the smaller ones are dropped."""
_LEAST_PART: Final = 1 << 16
"""Entries that are looked at together, unless fewer are left."""
_BLOCK: Final = 1 << 18
"""Entries that are dropped or kept together."""

_Block = tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]


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
        k = min(k, self._filled)
        indices: IndexArray = np.empty(k, self._indices.dtype)
        done = 0
        for _, some in self._kept(*self._bound(k)):
            indices[done : done + some.size] = some
            done += some.size
        indices.sort(kind="stable")  # of few runs, as tensors are: in a tenth of the time
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
        ties = 0
        if begin < self._tie:
            ties = int(np.count_nonzero(bits[: self._tie - begin] == self._floor))
        count = int(np.count_nonzero(bits > self._floor)) + ties
        if not count:
            return
        found = kernels().emit(bits, self._floor, ties, count)
        end = self._filled + count
        self._bits[self._filled : end] = bits[found]
        self._indices[self._filled : end] = found
        self._indices[self._filled : end] += self._indices.dtype.type(begin)
        self._filled = end

    def _drop(self, k: int) -> None:
        """Keep the ``k`` largest entries alone, in the order that they have."""
        self._floor, self._tie = self._bound(k)
        done = 0
        for bits, indices in self._kept(self._floor, self._tie):
            end = done + bits.size  # no further than where they lay
            self._bits[done:end], self._indices[done:end] = bits, indices
            done = end
        self._filled = done

    def _bound(self, k: int) -> tuple[int, int]:
        """The bits and the index of the last of the ``k`` largest; ``k`` are gathered at least."""
        bits = self._bits[: self._filled]
        last = locate_count(
            kernels().histogram(bits), k, lambda upper: kernels().histogram_within(bits, upper)
        )
        assert last is not None  # all that are gathered are positive
        equal = np.concatenate([i[b == last.bits] for b, i in self._blocks()])
        ties = last.ties - 1
        return last.bits, int(np.partition(equal, ties)[ties] if last.partial else equal.max())

    def _kept(self, floor: int, tie: int) -> Iterator[_Block]:
        """Yield what is gathered and is no smaller than an entry of these bits and this index."""
        for bits, indices in self._blocks():
            kept = bits > floor
            equal = bits == floor
            if equal.any():
                kept |= equal & (indices <= tie)
            places = np.flatnonzero(kept)
            yield bits[places], indices[places]

    def _blocks(self) -> Iterator[_Block]:
        """Yield what is gathered, in blocks whose copies take no memory to speak of."""
        for begin in range(0, self._filled, _BLOCK):
            end = min(begin + _BLOCK, self._filled)
            yield self._bits[begin:end], self._indices[begin:end]
