"""The least hash values of indices on a device, in plain torch operations.

torch has no unsigned arithmetic: signed addition and multiplication wrap to the same bits, a shift
is masked, and with the sign bits flipped a signed minimum is the unsigned one. The results equal
those of ``modelkin.core.kernels.reference.minhash`` bit for bit. Indices are not checked here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from modelkin.core.sketching.schemes import ValueArray
from modelkin.torch.words import shift_right, to_signed_int

__all__ = ["MAX_HASHES", "least_hashes"]

MAX_HASHES = 1 << 24
"""The number of hashes in memory at a time: 64 MiB for 32 bits each, 128 MiB for 64 bits."""

_MURMUR = {
    32: ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None)),
    64: ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, None)),
}
"""The finalisers of MurmurHash3: shifts, and the factor after each."""


@torch.no_grad()
def least_hashes(indices: Tensor, a: ValueArray, b: ValueArray) -> ValueArray:
    """The least ``a * mix(index) + b`` for each of h permutations, modulo 2^32 or 2^64.

    Args:
        indices: int64, shape ``(n,)``, at least one.
        a: odd factors, shape ``(h,)``; uint32 means ``affine32``, uint64 ``affine64``.
        b: offsets, of the same shape and dtype.

    Returns:
        The minima, shape ``(h,)``, in the dtype of ``a``, in this machine's memory.
    """
    width = 8 * a.dtype.itemsize
    sign = to_signed_int(1 << (width - 1), width)
    factors = _to_device(a, indices.device)[:, None]
    offsets = (_to_device(b, indices.device) ^ sign)[:, None]
    least = torch.full_like(offsets[:, 0], -1 - sign)
    for some in torch.split(indices, max(1, MAX_HASHES // least.numel())):
        mixed = _mix(some.to(least.dtype), _MURMUR[width], width)
        permuted = torch.addcmul(offsets, factors, mixed)
        torch.minimum(least, permuted.amin(dim=1), out=least)
    values: Any = (least ^ sign).cpu().numpy().view(a.dtype)
    return values  # type: ignore[no-any-return]


def _to_device(array: ValueArray, device: torch.device) -> Tensor:
    """Move an array to a device, as signed integers of the same bits."""
    return torch.from_numpy(array.astype(array.dtype.str.replace("u", "i"))).to(device)


def _mix(x: Tensor, steps: tuple[tuple[int, int | None], ...], width: int) -> Tensor:
    for shift, factor in steps:
        x = x ^ shift_right(x, shift, width)
        if factor is not None:
            x = x * to_signed_int(factor, width)
    return x
