"""Blinded indices computed on the device that holds them, in plain torch operations.

The indices equal those of ``modelkin.Blinding.blind``, bit for bit.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from modelkin.core.blinding import Blinding
from modelkin.core.support import Support
from modelkin.torch.signature import ascending

__all__ = ["blind_indices"]

_MAX_SIZE: Final = 2**62
"""The largest M; beyond it, a step of the walk may exceed torch's signed integers."""


@torch.no_grad()
def blind_indices(indices: Tensor, blinding: Blinding) -> Tensor:
    """Blind indices on their device; return them ascending, as int64.

    The tables of the blinding's rounds, at most 8 MB, are copied to the device. Sign the result
    with :func:`modelkin.torch.signature_of`; then no index leaves the device.

    Args:
        indices: K distinct integers in ``[0, M)``, ascending, shape ``(K,)``, in the layout that
            the blinding was made with. Where its tensors are not sorted by name, the host moves
            them.
        blinding: a blinding of the same M.

    Raises:
        InvalidSupport: the indices are not a vector of ascending distinct integers below M.
    """
    size, radices = blinding.num_parameters, blinding.radices
    if size > _MAX_SIZE or not blinding.keeps_order:
        return _on_the_host(ascending(indices, size), blinding)
    tables = torch.from_numpy(blinding.round_tables().astype("int32")).to(indices.device)
    moved = ascending(indices, size).clone()
    outside = torch.ones_like(moved, dtype=torch.bool)
    while bool(outside.any()):
        moved[outside] = _walk(moved[outside], radices, tables)
        outside = moved >= size
    return moved.sort().values


def _on_the_host(indices: Tensor, blinding: Blinding) -> Tensor:
    support = Support.trusted(indices.cpu().numpy().astype("uint64"), blinding.num_parameters)
    moved = blinding.blind(support).indices.astype("int64")
    return torch.from_numpy(moved).to(indices.device)


def _walk(values: Tensor, radices: tuple[int, ...], tables: Tensor) -> Tensor:
    digits = []
    for radix in reversed(radices):
        rest = torch.div(values, radix, rounding_mode="floor")
        digits.append(values - rest * radix)
        values = rest
    digits.reverse()
    for turn, table in enumerate(tables):
        at = turn % len(radices)
        digits[at] = (digits[at] + table[digits[(at + 1) % len(radices)]]) % radices[at]
    walked = digits[0]
    for digit, radix in zip(digits[1:], radices[1:], strict=True):
        walked = walked * radix + digit
    return walked
