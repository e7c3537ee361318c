"""``DeviceEntries``: an importance read on its own device, in plain torch operations.

Histograms of float bits and indices equal those of ``modelkin.core.selection.entries.HostEntries``,
bit for bit. Only histograms of 65,536 cells and the K indices are copied to this machine; for an
ordered support, the K entries too.
``modelkin.core.selection.decision`` decides how much is selected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modelkin.core.importance import Origin, origin_of
from modelkin.core.indices import IndexArray, index_dtype
from modelkin.core.selection import radix
from modelkin.core.selection.entries import refusal
from modelkin.core.sketching.schemes import ValueArray
from modelkin.errors import InvalidImportance
from modelkin.torch.minima import least_hashes

__all__ = ["CHUNK_SIZE", "DeviceEntries", "host_indices"]

CHUNK_SIZE = 1 << 23
"""The number of entries read at a time. torch's temporaries take at most 28 bytes for each, 235 MB,
however large the importance is. The counts and masses of that many entries fit one 64-bit cell (23
bits of count above 40 bits of mass)."""

_MASS_BITS = 40
_LOWER = 0xFFFF


class DeviceEntries:
    """A one-dimensional tensor of floats on any device, of any strides, read chunk by chunk.

    Attributes:
        modelkin_origin: the origin attached to the importance, for ``origin_of``.
    """

    __slots__ = ("_values", "modelkin_origin")

    def __init__(self, values: Tensor, origin: Origin | None = None) -> None:
        """Take values that the caller has checked. Elsewhere use :meth:`of`."""
        self._values = values
        self.modelkin_origin = origin

    @classmethod
    def of(cls, importance: Tensor) -> DeviceEntries:
        """The entries of an importance of shape ``(M,)``, which is not copied.

        Half precisions are widened and float64 is rounded a chunk at a time.

        Raises:
            InvalidImportance: the importance is not a plain vector of floats, but sharded, sparse
                or without data.
        """
        plain = importance.detach()
        if type(plain) is not Tensor or plain.layout != torch.strided or plain.is_meta:
            raise InvalidImportance(
                f"the importance is not a plain tensor but {_describe(plain)}: gather a sharded "
                f"one (full_tensor()), make a sparse one dense (to_dense())",
                field="importance",
            )
        if plain.dim() != 1 or plain.numel() == 0:
            raise InvalidImportance(
                f"an importance is a vector with an entry for each parameter, "
                f"this has shape {tuple(plain.shape)}",
                field="importance",
            )
        if not plain.is_floating_point():
            raise InvalidImportance(
                f"an importance holds floats, this holds {plain.dtype}", field="importance"
            )
        return cls(plain, origin_of(importance))

    @property
    def size(self) -> int:
        return self._values.numel()

    @property
    def device(self) -> torch.device:
        """The device of the entries."""
        return self._values.device

    def part(self, begin: int, end: int) -> DeviceEntries:
        return DeviceEntries(self._values[begin:end])

    def take(self, stretches: Sequence[tuple[int, int]]) -> DeviceEntries:
        parts = [self._values[begin:end] for begin, end in stretches]
        return DeviceEntries(parts[0] if len(parts) == 1 else torch.cat(parts))

    def histogram(self) -> radix.Counts:
        return self.histogram_mass()[0]  # counting the mass as well costs nothing

    @torch.no_grad()
    def histogram_mass(self) -> tuple[radix.Counts, radix.Counts]:
        counts = torch.zeros(radix.BINS, dtype=torch.int64, device=self.device)
        low = torch.zeros_like(counts)
        cells = torch.zeros_like(counts)
        for _, bits in self._chunks():
            upper = ((bits >> 16) & _LOWER).long()
            weights = (bits & _LOWER).long().add_(1 << _MASS_BITS)
            cells.zero_().scatter_add_(0, upper, weights)
            # A chunk of one value alone may fill the sign bit too, and the shift spreads it.
            counts += (cells >> _MASS_BITS) & ((1 << (64 - _MASS_BITS)) - 1)
            low += cells & ((1 << _MASS_BITS) - 1)
        return counts.cpu().numpy(), low.cpu().numpy()

    @torch.no_grad()
    def histogram_within(self, upper: int) -> radix.Counts:
        counts = torch.zeros(radix.BINS, dtype=torch.int64, device=self.device)
        for _, bits in self._chunks():
            inside = bits[((bits >> 16) & _LOWER) == upper]
            counts += torch.bincount(inside & _LOWER, minlength=radix.BINS)
        within: radix.Counts = counts.cpu().numpy()
        return within

    def emit(self, threshold: radix.Threshold) -> IndexArray:
        return host_indices(self.indices(threshold), self.size)

    @torch.no_grad()
    def indices(self, threshold: radix.Threshold, begin: int = 0) -> Tensor:
        """The indices of the selected entries, ascending, on the device.

        Args:
            threshold: from the histograms of these same entries.
            begin: the first index of this part in the whole, added to every index.

        Returns:
            The indices as int64, shape ``(threshold.k,)``.
        """
        found = torch.empty(threshold.k, dtype=torch.int64, device=self.device)
        done, ties = 0, threshold.ties
        for at, bits in self._chunks():
            taken = bits > threshold.bits  # bits are signed: -0.0 is below every threshold
            if not threshold.partial:
                taken |= bits == threshold.bits
            elif ties:
                equal = torch.nonzero(bits == threshold.bits)[:ties, 0]
                taken[equal] = True
                ties -= equal.numel()
            some = torch.nonzero(taken)[:, 0]
            torch.add(some, at + begin, out=found[done : done + some.numel()])
            done += some.numel()
        return found

    @torch.no_grad()
    def bits(self, indices: IndexArray) -> npt.NDArray[np.uint32]:
        places = torch.from_numpy(indices.astype(np.int64)).to(self.device)
        found: npt.NDArray[np.uint32] = _bits(self._values[places]).cpu().numpy().view(np.uint32)
        return found

    @torch.no_grad()
    def ties_end(self, threshold: radix.Threshold) -> int:
        ties = threshold.ties
        for at, bits in self._chunks() if threshold.partial else ():
            equal = torch.nonzero(bits == threshold.bits)[:, 0]
            if equal.numel() >= ties:
                return at + int(equal[ties - 1]) + 1
            ties -= equal.numel()
        return self.size

    @torch.no_grad()
    def is_selected(
        self, indices: IndexArray, threshold: radix.Threshold, ties_end: int
    ) -> npt.NDArray[np.bool_]:
        places = torch.from_numpy(indices.astype(np.int64)).to(self.device)
        bits = _bits(self._values[places])
        chosen = bits >= torch.where(places < ties_end, threshold.bits, threshold.bits + 1)
        answer: npt.NDArray[np.bool_] = chosen.cpu().numpy()
        return answer

    def least_hashes(self, threshold: radix.Threshold, begin: int, a: Any, b: Any) -> ValueArray:
        return least_hashes(self.indices(threshold, begin), a, b)

    @torch.no_grad()
    def refusal(self) -> InvalidImportance:
        first, value, count = -1, None, 0
        for at in range(0, self.size, CHUNK_SIZE):
            values = self._values[at : at + CHUNK_SIZE]
            bad = torch.nonzero(~((values.float() < torch.inf) & (values >= 0)))[:, 0]
            if bad.numel() and not count:
                wide = values if values.element_size() > 4 else values.float()
                first, value = at + int(bad[0]), wide[bad[0]].cpu().numpy()
            count += bad.numel()
        return refusal(first, value, count, self.size)

    def _chunks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first index of each chunk, and its float32 bits as int32."""
        for at in range(0, self.size, CHUNK_SIZE):
            values = self._values[at : at + CHUNK_SIZE]
            if values.dtype == torch.float64 and bool((values < 0).any()):
                raise self.refusal()  # check before rounding to zero
            yield at, _bits(values)


def _bits(values: Tensor) -> Tensor:
    """The float32 bits of floats, as int32."""
    return values.to(torch.float32).contiguous().view(torch.int32)


def host_indices(indices: Tensor, num_parameters: int) -> IndexArray:
    """Copy indices to this machine in a support's dtype: 4 bytes each if M <= 2^32, else 8."""
    dtype = index_dtype(num_parameters)
    if dtype.itemsize == 4:
        indices = indices.to(torch.int32)  # wraps from 2^31 on, and is viewed as unsigned below
    copied: Any = indices.cpu().numpy().view(dtype)
    return copied  # type: ignore[no-any-return]


def _describe(tensor: Tensor) -> str:
    if type(tensor) is not Tensor:
        return f"a {type(tensor).__name__}"
    return "without data (meta)" if tensor.is_meta else f"of layout {tensor.layout}"
