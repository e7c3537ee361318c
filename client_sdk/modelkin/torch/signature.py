"""Signatures made on the device where an importance or indices lie, in plain torch operations.

Of a selection only the signature crosses to this machine: h values. They are those of
``modelkin.core.signature.Signature.of``, bit for bit. Nothing here knows how a signature is
compared or sent.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from modelkin.core.decision import Request, decide
from modelkin.core.schemes import (
    SCHEMES,
    ValueArray,
    check_permutations,
    permutations,
    value_dtype,
)
from modelkin.core.signature import Signature
from modelkin.core.support import check_num_parameters
from modelkin.errors import InvalidSupport
from modelkin.torch.selection import DeviceEntries

__all__ = ["CELLS", "select_signature", "signature_of"]

CELLS = 1 << 24
"""Permuted indices that are held at once: 64 MiB of 32-bit ones, 128 MiB of 64-bit ones."""

_FINALIZERS = {
    32: ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None)),
    64: ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, None)),
}
"""MurmurHash3's fmix32 and fmix64: shifts, and the factor after each."""


def select_signature(
    importance: Tensor,
    *,
    num_perm: int = 256,
    seed: int = 1,
    scheme: str | None = None,
    **how: Any,
) -> Signature:
    """``select_support(importance, **how).signature(num_perm, seed, scheme)``, on the device.

    Args:
        importance: of shape ``(M,)``, on any device.
        num_perm: h, 1 to 4,096.
        seed: of the permutations, 0 to 2^32 - 1.
        scheme: ``affine32`` or ``affine64``, the default where M needs it; no other is made here.
        how: how K is chosen: any of ``k``, ``fraction``, ``coverage``, ``k_max``, ``layout``,
            ``budgets``, ``stability`` and ``resamples``, as for ``modelkin.select_support``. The
            supports of resamples, if any, are compared in this machine's memory.

    Raises:
        InvalidSignature: h, seed or scheme are out of range.
        InvalidImportance, InvalidParameter, SpaceMismatch: as ``modelkin.select_support``.
    """
    entries = DeviceEntries.of(importance)
    m = entries.size
    scheme, h, seed = check_permutations(m, num_perm, seed, scheme)
    if how.get("resamples") is not None:
        how["resamples"] = [DeviceEntries.of(resample) for resample in how["resamples"]]
    minhash = _MinHash(scheme, h, seed, entries.device)
    decision = decide(entries, Request(**how))
    for take in decision.takes:
        if take.threshold is not None:
            stretch = entries.part(take.begin, take.end)
            minhash.update(stretch.indices(take.threshold, take.begin))
    return Signature(
        minhash.values(),
        scheme=scheme,
        seed=seed,
        num_parameters=m,
        support_size=decision.k,
    )


def signature_of(
    indices: Tensor,
    num_parameters: int,
    *,
    num_perm: int = 256,
    seed: int = 1,
    scheme: str | None = None,
) -> Signature:
    """The signature of a support whose indices lie on a device.

    Args:
        indices: K distinct integers in ``[0, M)``, ascending, shape ``(K,)``.
        num_parameters: M.
        num_perm: as for :func:`select_signature`, like the rest.
        seed: of the permutations.
        scheme: of the permutations.

    Raises:
        InvalidSupport: the indices are no vector of ascending distinct integers below M.
        InvalidSignature: h, seed or scheme are out of range.
        InvalidParameter: M is.
    """
    m = check_num_parameters(num_parameters)
    scheme, h, seed = check_permutations(m, num_perm, seed, scheme)
    minhash = _MinHash(scheme, h, seed, indices.device)
    checked = _ascending(indices, m)
    minhash.update(checked)
    return Signature(
        minhash.values(),
        scheme=scheme,
        seed=seed,
        num_parameters=m,
        support_size=checked.numel(),
    )


def _ascending(indices: Tensor, num_parameters: int) -> Tensor:
    """The indices as int64, where they are a support's."""
    real = indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool
    if real or indices.dim() != 1 or indices.numel() == 0:
        raise InvalidSupport(
            f"indices must be a vector of integers and not empty, this is {indices.dtype} of shape "
            f"{tuple(indices.shape)}",
            field="indices",
        )
    wide = indices.detach().to(torch.int64)
    if not bool((wide[1:] > wide[:-1]).all()):
        raise InvalidSupport(
            "indices are not sorted, or repeated: pass torch.unique(indices) if they are meant as "
            "a set",
            field="indices",
        )
    if int(wide[0]) < 0 or int(wide[-1]) >= num_parameters:
        raise InvalidSupport(
            f"indices {int(wide[0])} to {int(wide[-1])} are out of range for {num_parameters} "
            f"parameters",
            field="indices",
        )
    return wide


class _MinHash:
    """The least ``a * mix(index) + b`` so far for each of h permutations, modulo 2^32 or 2^64.

    torch has no unsigned arithmetic: signed multiplication wraps to the same bits, and with the
    sign bit of every ``b`` flipped the signed minimum is the unsigned one, sign bit flipped.
    """

    def __init__(self, scheme: str, num_perm: int, seed: int, device: torch.device) -> None:
        a, b = permutations(scheme, num_perm, seed)
        self._width = SCHEMES[scheme]
        self._sign = -(1 << (self._width - 1))
        self._dtype = value_dtype(scheme)
        self._factors = _signed(a, device)[:, None]
        self._offsets = (_signed(b, device) ^ self._sign)[:, None]
        self._least = torch.full_like(self._offsets[:, 0], -1 - self._sign)

    @torch.no_grad()
    def update(self, indices: Tensor) -> None:
        """Counts indices, int64 of shape ``(n,)``."""
        for some in torch.split(indices, max(1, CELLS // self._least.numel())):
            mixed = _mixed(some.to(self._least.dtype), self._width)
            permuted = torch.addcmul(self._offsets, self._factors, mixed)
            torch.minimum(self._least, permuted.amin(dim=1), out=self._least)

    def values(self) -> ValueArray:
        """What crosses to this machine: h unsigned integers."""
        crossed: Any = (self._least ^ self._sign).cpu().numpy().view(self._dtype)
        return crossed  # type: ignore[no-any-return]


def _signed(array: ValueArray, device: torch.device) -> Tensor:
    return torch.from_numpy(array.astype(array.dtype.str.replace("u", "i"))).to(device)


def _mixed(x: Tensor, bits: int) -> Tensor:
    """MurmurHash3's finaliser in signed arithmetic that wraps."""
    for shift, factor in _FINALIZERS[bits]:
        x = x ^ ((x >> shift) & ((1 << (bits - shift)) - 1))  # a shift without the sign
        if factor is not None:
            x = x * (factor - (1 << bits))
    return x
