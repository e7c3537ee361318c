"""``Entries``: an importance as a selection reads it, on any device.

A selection needs histograms of float bits, and at the end the indices above a threshold. So it can
run on the device of the importance, with the same result everywhere. ``HostEntries`` is an
importance in this machine's memory; ``modelkin.torch.selection`` has those of other devices. This
module never imports torch, and recognises a tensor by its methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from modelkin.core.importance import Origin, origin_of
from modelkin.core.indices import IndexArray, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.selection import radix
from modelkin.core.sketching.minima import hash_minima
from modelkin.core.sketching.schemes import ValueArray
from modelkin.errors import InvalidImportance

__all__ = ["Entries", "HostEntries", "entries_of", "refusal"]

Bits = npt.NDArray[np.uint32]

_BLOCK_SIZE = 1 << 18
"""Entries that are compared at a time, a megabyte."""


@runtime_checkable
class Entries(Protocol):
    """An importance of ``size`` entries, float32 or rounded to it, with histograms of its bits."""

    @property
    def size(self) -> int:
        """M."""
        ...

    def part(self, begin: int, end: int) -> Entries:
        """The entries ``[begin, end)``, without a copy."""
        ...

    def take(self, stretches: Sequence[tuple[int, int]]) -> Entries:
        """The entries of several stretches ``[begin, end)``, in the order given."""
        ...

    def histogram(self) -> radix.Counts:
        """How many entries have each upper half of their bits; shape ``(65536,)``."""
        ...

    def histogram_mass(self) -> tuple[radix.Counts, radix.Counts]:
        """:meth:`histogram`, and for each upper half the sum of the lower halves."""
        ...

    def histogram_within(self, upper: int) -> radix.Counts:
        """How many entries of one upper half have each lower half; shape ``(65536,)``."""
        ...

    def emit(self, threshold: radix.Threshold) -> IndexArray:
        """The ascending indices of the selected entries, in this machine's memory."""
        ...

    def bits(self, indices: IndexArray) -> Bits:
        """The float32 bits of some entries, in this machine's memory.

        Args:
            indices: the indices of the entries, shape ``(n,)``.
        """
        ...

    def ties_end(self, threshold: radix.Threshold) -> int:
        """One more than the index of the last selected entry that equals the threshold."""
        ...

    def is_selected(
        self, indices: IndexArray, threshold: radix.Threshold, ties_end: int
    ) -> npt.NDArray[np.bool_]:
        """Whether each of some entries is selected; shape ``(n,)``.

        Args:
            indices: the indices of the entries, shape ``(n,)``.
            threshold: the least selected value, and how many ties of it count.
            ties_end: as :meth:`ties_end` of it.
        """
        ...

    def least_hashes(self, threshold: radix.Threshold, begin: int, a: Any, b: Any) -> ValueArray:
        """The least hash values of the indices of the selected entries, shape ``(h,)``.

        Args:
            threshold: the least selected value, and how many ties of it count.
            begin: added to every index: the first index of this part in the whole.
            a: odd factors, shape ``(h,)``, in the dtype of the values.
            b: offsets, likewise.
        """
        ...

    def refusal(self) -> InvalidImportance:
        """The error that names the first entry that is NaN, infinite or negative."""
        ...


class HostEntries:
    """An importance in this machine's memory, read by numba's or numpy's kernels.

    Attributes:
        modelkin_origin: the origin attached to the importance, for ``origin_of``.
    """

    __slots__ = ("_bits", "modelkin_origin")

    def __init__(self, bits: Bits, origin: Origin | None = None) -> None:
        """Args: bits: contiguous float32 seen as uint32, shape ``(M,)``; origin: of them."""
        self._bits = bits
        self.modelkin_origin = origin

    @classmethod
    def of(cls, importance: Any) -> HostEntries:
        """Entries of a vector of floats: of float32 without a copy, of others as float32.

        Raises:
            InvalidImportance: not a vector of floats, or a float64 is negative.
        """
        array = _array(importance)
        if array.ndim == 0 and array.dtype.kind == "O":
            raise InvalidImportance(
                f"an importance is a vector with an entry for each parameter, this is a "
                f"{type(importance).__name__}: make one of a model with fisher_importance or "
                f"weight_importance of modelkin.torch",
                field="importance",
            )
        if array.ndim != 1 or array.size == 0:
            raise InvalidImportance(
                f"an importance is a vector with an entry for each parameter, "
                f"this has shape {array.shape}",
                field="importance",
            )
        if array.dtype.kind != "f":
            raise InvalidImportance(
                f"an importance holds floats, this holds {array.dtype}", field="importance"
            )
        if array.dtype.itemsize > 4 and (array < 0).any():
            raise _refusal_of(array)  # before rounding can turn it into zero
        with np.errstate(over="ignore"):  # an overflow is refused as infinite
            bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
            return cls(bits, origin_of(importance))

    @property
    def size(self) -> int:
        return int(self._bits.size)

    def part(self, begin: int, end: int) -> HostEntries:
        return HostEntries(self._bits[begin:end])

    def take(self, stretches: Sequence[tuple[int, int]]) -> HostEntries:
        parts = [self._bits[begin:end] for begin, end in stretches]
        return HostEntries(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def histogram(self) -> radix.Counts:
        counts: radix.Counts = kernels().histogram(self._bits)
        return counts

    def histogram_mass(self) -> tuple[radix.Counts, radix.Counts]:
        both: tuple[radix.Counts, radix.Counts] = kernels().histogram_mass(self._bits)
        return both

    def histogram_within(self, upper: int) -> radix.Counts:
        counts: radix.Counts = kernels().histogram_within(self._bits, upper)
        return counts

    def emit(self, threshold: radix.Threshold) -> IndexArray:
        # If all ties are selected, the kernel need not search for the last one.
        ties = threshold.ties if threshold.partial else self.size
        indices: IndexArray = kernels().emit(self._bits, threshold.bits, ties, threshold.k)
        return indices

    def bits(self, indices: IndexArray) -> Bits:
        return self._bits[indices]

    def ties_end(self, threshold: radix.Threshold) -> int:
        ties = threshold.ties
        for begin in range(0, self.size if threshold.partial else 0, _BLOCK_SIZE):
            equal = np.flatnonzero(self._bits[begin : begin + _BLOCK_SIZE] == threshold.bits)
            if equal.size >= ties:
                return begin + int(equal[ties - 1]) + 1
            ties -= equal.size
        return self.size

    def is_selected(
        self, indices: IndexArray, threshold: radix.Threshold, ties_end: int
    ) -> npt.NDArray[np.bool_]:
        bits = self._bits[indices].view(np.int32)  # signed, so that -0.0 is below every threshold
        chosen: npt.NDArray[np.bool_] = bits >= np.where(
            indices < ties_end, threshold.bits, threshold.bits + 1
        )
        return chosen

    def least_hashes(self, threshold: radix.Threshold, begin: int, a: Any, b: Any) -> ValueArray:
        dtype = index_dtype(begin + self.size)
        indices: Any = self.emit(threshold).astype(dtype, copy=False)
        return hash_minima(indices + dtype.type(begin), a, b)

    def refusal(self) -> InvalidImportance:
        return _refusal_of(self._bits.view(np.float32))


def entries_of(importance: Any) -> Entries:
    """``Entries`` unchanged, any other importance through :meth:`HostEntries.of`."""
    return importance if isinstance(importance, Entries) else HostEntries.of(importance)


def refusal(first: int, value: Any, bad: int, size: int) -> InvalidImportance:
    """The error for ``bad`` of ``size`` entries, the first of them ``value`` at index ``first``."""
    return InvalidImportance(
        f"importance[{first}] = {value}: entries must be finite and not negative, "
        f"{bad} of {size} are not",
        field="importance",
    )


def _array(importance: Any) -> npt.NDArray[Any]:
    if not (hasattr(importance, "detach") and hasattr(importance, "cpu")):
        return np.asarray(importance)
    try:
        tensor = importance.detach().cpu()
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor = tensor.float()  # exact, and numpy has no bfloat16
        array: npt.NDArray[Any] = tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise InvalidImportance(
            f"the importance is not a plain tensor: {error}", field="importance"
        ) from error
    return array


def _refusal_of(array: npt.NDArray[Any]) -> InvalidImportance:
    first, count = -1, 0
    for at in range(0, array.size, 1 << 20):
        block = array[at : at + (1 << 20)]
        bad = np.flatnonzero(~((block >= 0) & (block < np.inf)))
        if bad.size and first < 0:
            first = at + int(bad[0])
        count += bad.size
    return refusal(first, array[first], count, array.size)
