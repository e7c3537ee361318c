"""The values of a signature, computed on a device in plain torch operations.

torch has no unsigned arithmetic: signed addition and multiplication wrap to the same bits, a shift
is masked, and with the sign bits flipped a signed minimum is the unsigned one. The results equal
``modelkin.core.kernels.reference_minhash``'s bit for bit. Indices are not checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from modelkin.core.kernels.reference_minhash import EMPTY, GOLDEN, fss_key, fss_rounds
from modelkin.core.sketching.schemes import SCHEMES, ValueArray, permutations, value_dtype

__all__ = ["MAX_HASHES", "FIRST_PART_SIZE", "Minima", "minima"]

MAX_HASHES = 1 << 24
"""How many hashes are in memory at a time: 64 MiB of 32-bit ones, 128 MiB of 64-bit ones."""

FIRST_PART_SIZE = 1 << 16
"""How many indices ``fss32`` hashes first: after them it can skip most others."""

_MURMUR = {
    32: ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None)),
    64: ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, None)),
}
_LOWBIAS = ((16, 0x7FEB352D), (15, 0x846CA68B), (16, None))
"""Finalisers: shifts, and the factor after each."""


class Minima(Protocol):
    """The minima of a scheme over all indices so far."""

    def update(self, indices: Tensor) -> None:
        """Add indices, int64 of shape ``(n,)``, each of them new."""

    def values(self) -> ValueArray:
        """The h values as unsigned integers in this machine's memory; ends the updates."""


def minima(scheme: str, num_perm: int, seed: int, device: torch.device) -> Minima:
    """Empty minima for a checked scheme, h and seed."""
    if scheme == "fss32":
        return _Fast(num_perm, seed, device)
    return _Affine(scheme, num_perm, seed, device)


class _Affine:
    """The least ``a * mix(index) + b`` for each of h permutations, modulo 2^32 or 2^64."""

    def __init__(self, scheme: str, num_perm: int, seed: int, device: torch.device) -> None:
        a, b = permutations(scheme, num_perm, seed)
        self._width = SCHEMES[scheme]
        self._dtype = value_dtype(scheme)
        sign = _signed(1 << (self._width - 1), self._width)
        self._sign = sign
        self._factors = _moved(a, device)[:, None]
        self._offsets = (_moved(b, device) ^ sign)[:, None]
        self._least = torch.full_like(self._offsets[:, 0], -1 - sign)

    @torch.no_grad()
    def update(self, indices: Tensor) -> None:
        for some in torch.split(indices, max(1, MAX_HASHES // self._least.numel())):
            mixed = _mixed(some.to(self._least.dtype), _MURMUR[self._width], self._width)
            permuted = torch.addcmul(self._offsets, self._factors, mixed)
            torch.minimum(self._least, permuted.amin(dim=1), out=self._least)

    def values(self) -> ValueArray:
        copied: Any = (self._least ^ self._sign).cpu().numpy().view(self._dtype)
        return copied  # type: ignore[no-any-return]


class _Fast:
    """``fss32``: the least value of each of h bins, in int64, which holds all of uint32.

    Indices are kept as long as a bin is empty, since only then another round needs them.
    """

    def __init__(self, num_perm: int, seed: int, device: torch.device) -> None:
        self._bits = num_perm.bit_length() - 1
        self._rounds = fss_rounds(num_perm)
        self._key = _signed(int(fss_key(seed)), 32)
        self._least = torch.full((num_perm,), EMPTY, dtype=torch.int64, device=device)
        self._kept: list[Tensor] = []
        self._seen = 0

    @torch.no_grad()
    def update(self, indices: Tensor) -> None:
        for some in self._growing(indices):
            self._lower(self._able(self._hashed(some)), 0)
        self._kept.append(indices)
        if not self._any_empty():
            self._kept.clear()

    @torch.no_grad()
    def values(self) -> ValueArray:
        for number in range(1, self._rounds):
            if not self._any_empty():
                break
            for hashes in self._kept_hashes(MAX_HASHES):
                again = hashes + _signed(number * GOLDEN, 32)
                self._lower(_mixed(again, _LOWBIAS, 32), number)
        self._fill_empty()
        copied: Any = self._least.to(torch.int32).cpu().numpy().view("uint32")
        return copied  # type: ignore[no-any-return]

    def _growing(self, indices: Tensor) -> Iterator[Tensor]:
        """Yield a few indices first, then larger parts: after the first most others are skipped."""
        at = 0
        while at < indices.numel():
            some = indices[at : at + min(MAX_HASHES, max(FIRST_PART_SIZE, 15 * self._seen))]
            at += some.numel()
            self._seen += some.numel()
            yield some

    def _hashed(self, indices: Tensor) -> Tensor:
        """The hashes of round 0, int32."""
        return _mixed(indices.to(torch.int32) ^ self._key, _LOWBIAS, 32)

    def _kept_hashes(self, part_size: int) -> Iterator[Tensor]:
        for indices in self._kept:
            for some in torch.split(indices, part_size):
                yield self._hashed(some)

    def _able(self, hashes: Tensor) -> Tensor:
        """The hashes that can still lower a bin in round 0."""
        largest = int(self._least.max())
        return hashes if largest == EMPTY else hashes[_shifted(hashes, self._bits, 32) < largest]

    def _lower(self, hashes: Tensor, number: int) -> None:
        ranks = _shifted(hashes, self._bits, 32).long()
        bins = (hashes & (self._least.numel() - 1)).long()
        self._least.scatter_reduce_(0, bins, ranks | (number << (32 - self._bits)), "amin")

    def _any_empty(self) -> bool:
        return int(self._least.max()) == EMPTY

    def _fill_empty(self) -> None:
        """Fill the bins that no round reached by classic MinHash, all of them together."""
        empty = torch.nonzero(self._least == EMPTY)[:, 0]
        if not empty.numel():
            return
        sign, stamp = _signed(1 << 31, 32), self._rounds << (32 - self._bits)
        offsets = ((empty + self._rounds) * GOLDEN).to(torch.int32)[:, None]
        smallest = torch.full_like(offsets[:, 0], -1 - sign)
        for hashes in self._kept_hashes(max(1, MAX_HASHES // empty.numel())):
            own = _mixed(hashes + offsets, _LOWBIAS, 32) ^ sign
            torch.minimum(smallest, own.amin(dim=1), out=smallest)
        self._least[empty] = _shifted(smallest ^ sign, self._bits, 32).long() | stamp


def _moved(array: ValueArray, device: torch.device) -> Tensor:
    """The same bits as signed integers on a device."""
    return torch.from_numpy(array.astype(array.dtype.str.replace("u", "i"))).to(device)


def _mixed(x: Tensor, steps: tuple[tuple[int, int | None], ...], width: int) -> Tensor:
    for shift, factor in steps:
        x = x ^ _shifted(x, shift, width)
        if factor is not None:
            x = x * _signed(factor, width)
    return x


def _shifted(x: Tensor, shift: int, width: int) -> Tensor:
    """Shift to the right, with zeros from the left."""
    return (x >> shift) & ((1 << (width - shift)) - 1)


def _signed(number: int, width: int) -> int:
    """The signed integer with the same low bits."""
    sign = 1 << (width - 1)
    return (number & ((1 << width) - 1) ^ sign) - sign
