"""The matrices of a tensor on a device, and the way to their keys.

A matrix is read in stretches, so the memory beside it does not grow with it. Of its values only
some sampled lines are copied to this machine, which tell tables from weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modelkin.core.fingerprints.lines import Keys
from modelkin.core.fingerprints.matrices import MIN_SIDE, axes_of_matrices, sides
from modelkin.core.fingerprints.scales import reciprocal_rms
from modelkin.core.fingerprints.tables import LineSample, has_few_values, is_structured
from modelkin.core.fingerprints.tensor_signatures import SignatureMaker, permutations_of_signatures
from modelkin.torch.fingerprints.keys import keys_of, members_of, ranks_of_places, sets_of
from modelkin.torch.fingerprints.squares import Squares, Sums
from modelkin.torch.minima import least_hashes

__all__ = ["STRETCH_SIZE", "DeviceMatrix", "matrices_of"]

Floats = npt.NDArray[np.float32]
Took = Callable[[int], None]

STRETCH_SIZE = 1 << 22
"""Values that are looked at together."""
_BLOCK: Final = 1 << 15
"""Lines whose keys are made together."""


def matrices_of(tensor: Tensor) -> Iterator[Tensor]:
    """The matrices of a tensor, as ``core.fingerprints.matrices`` has them; none with a short side.

    They are views, but for some kernels whose second side is below 64.
    """
    axes = axes_of_matrices(tuple(tensor.shape))
    if axes is None or min(sides(tuple(tensor.shape))) < MIN_SIDE:
        return
    moved = tensor.permute(*axes.places, axes.rows, *axes.columns)
    for place in np.ndindex(*moved.shape[: len(axes.places)]):
        matrix = moved[place]
        yield matrix.reshape(len(matrix), -1)


class DeviceMatrix:
    """A matrix on a device: a ``MatrixReading`` of the core, with the same bits.

    Args:
        matrix: floats of any dtype and strides, shape ``(rows, columns)``, no side below 64.
        took: is called with half the values of each stretch, once for its scales and once for its
            keys; what it raises ends the reading.

    Attributes:
        is_finite: whether all values are, also as float32. Where they are not, nothing else is
            known.
    """

    def __init__(self, matrix: Tensor, took: Took = lambda _: None) -> None:
        self._matrix, self._took = matrix, took
        self._scales = _scales(matrix, took)
        self.is_finite = self._scales is not None

    @property
    def is_structured(self) -> bool:
        """Whether it is a table that no training made."""
        return is_structured(self._sample)

    @property
    def has_few_values(self) -> bool:
        """Whether the largest magnitudes of its lines cannot be told apart."""
        return has_few_values(self._sample)

    @torch.no_grad()
    def read(self, signature: SignatureMaker, first: int = 0) -> tuple[Keys, Keys]:
        """Read the keys of its rows, and those of its columns.

        Args:
            signature: takes the members of the rows' sets.
            first: the place of the matrix's first value among those of the signature.
        """
        if self._scales is None:
            raise ValueError("the matrix is not finite")
        length = self._matrix.shape[1]

        def sign(begin: int, magnitudes: Tensor, least: Tensor) -> None:
            members = members_of(magnitudes, least)
            if members.numel():
                members += first + begin * length
                found: Any = least_hashes(members, *permutations_of_signatures())
                signature.lower(found)
            self._took(magnitudes.numel() // 2)

        rows = _keys(self._matrix, self._scales[0], sign)
        columns = _keys(self._matrix.T, self._scales[1], lambda *_: self._took(0))
        return rows, columns

    @cached_property
    def _sample(self) -> LineSample:
        sample = LineSample(*self._matrix.shape)
        rows, columns = sample.lines
        rows[:] = _taken(self._matrix[:, : rows.shape[1]], sample.row_numbers)
        columns[:] = _taken(self._matrix[: columns.shape[1]].T, sample.column_numbers)
        return sample


def _blocks(lines: Tensor) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of lines whose results are made of what their stretches gave.

    They take many operations on few numbers, which a device does best for thousands at a time.
    """
    step = max(_stretch(lines), _BLOCK)
    for begin in range(0, len(lines), step):
        yield begin, min(begin + step, len(lines))


def _stretches(lines: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield some lines at a time as float32, contiguous, with the number of the first."""
    step = _stretch(lines)
    for begin in range(0, len(lines), step):
        yield begin, lines[begin : begin + step].to(torch.float32).contiguous()


def _stretch(lines: Tensor) -> int:
    return max(1, STRETCH_SIZE // lines.shape[1])


@torch.no_grad()
def _scales(matrix: Tensor, took: Took) -> tuple[Floats, Floats] | None:
    """Of the places of its rows, and of its columns; None where a value is not finite."""
    rows, columns = matrix.shape
    if columns > rows:  # digits are kept of the shorter side, so they take little
        found = _scales(matrix.T, took)
        return None if found is None else (found[1], found[0])
    of_columns, of_rows = Sums(columns, matrix.device), list[Tensor]()
    for begin, end in _blocks(matrix):
        own = Sums(end - begin, matrix.device)
        for at, values in _stretches(matrix[begin:end]):
            squares = Squares(values)
            if not squares.are_finite:
                return None
            squares.add_to(of_columns, own, at)
            took(values.numel() // 2)
        of_rows.append(own.totals())
    return (
        reciprocal_rms(of_columns.totals().cpu().numpy(), rows),
        reciprocal_rms(torch.cat(of_rows).cpu().numpy(), columns),
    )


def _keys(lines: Tensor, scales: Floats, found: Callable[[int, Tensor, Tensor], None]) -> Keys:
    """The keys of lines; each stretch of them is shown with its least magnitudes."""
    places = torch.from_numpy(scales).to(lines.device)
    ranks = ranks_of_places(places.numel(), lines.device)
    keys, least = list[Tensor](), list[Tensor]()
    for begin, end in _blocks(lines):
        firsts, leasts = list[Tensor](), list[Tensor]()
        for at, values in _stretches(lines[begin:end]):
            magnitudes = values.abs().mul_(places)
            first, of_stretch = sets_of(magnitudes, ranks)
            found(begin + at, magnitudes, of_stretch)
            firsts.append(first)
            leasts.append(of_stretch)
        least.append(torch.cat(leasts))
        keys.append(keys_of(torch.cat(firsts), least[-1], places.numel()))
    words: npt.NDArray[np.uint64] = torch.cat(keys).cpu().numpy().view(np.uint64)
    return Keys(words, torch.cat(least).cpu().numpy(), scales)


@torch.no_grad()
def _taken(lines: Tensor, numbers: npt.NDArray[np.int64]) -> Floats:
    """Some lines as float32 in this machine's memory."""
    # Not every torch and device indexes floats of 8 bits; all index bytes.
    plain = lines.view(torch.uint8) if lines.element_size() == 1 else lines
    taken = plain[torch.from_numpy(numbers).to(lines.device)].view(lines.dtype)
    found: Floats = taken.to("cpu", torch.float32).numpy()
    return found
