"""Signatures computed on the device of an importance or of indices, in plain torch operations.

Only the h values of the signature are copied to this machine. They equal those of
``modelkin.core.sketching.signature.Signature.of``, bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from modelkin.core.indices import check_num_parameters
from modelkin.core.selection.decision import decide
from modelkin.core.selection.origins import prepared
from modelkin.core.selection.request import SelectionRequest
from modelkin.core.sketching.schemes import check_permutations
from modelkin.core.sketching.signature import Signature
from modelkin.errors import InvalidSupport
from modelkin.torch.minima import minima
from modelkin.torch.selection import DeviceEntries

__all__ = ["select_signature", "signature_of"]


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
        num_perm: h, 1 to 4,096; for ``fss32`` a power of two from 2 on.
        seed: of the permutations, 0 to 2^32 - 1.
        scheme: ``affine32``, ``affine64`` or ``fss32``; by default that of M.
        how: any of the keywords of ``modelkin.select_support``. The supports of resamples, if any,
            are compared in this machine's memory.

    Raises:
        InvalidSignature: h, seed or scheme are out of range.
        InvalidImportance, InvalidParameter, SpaceMismatch: as ``modelkin.select_support``.
    """
    if how.get("resamples") is not None:
        how["resamples"] = [DeviceEntries.of(resample) for resample in how["resamples"]]
    ready = prepared(DeviceEntries.of(importance), SelectionRequest(**how))
    entries: Any = ready.entries  # DeviceEntries stay what they are
    m = entries.size
    scheme, h, seed = check_permutations(m, num_perm, seed, scheme)
    found = minima(scheme, h, seed, entries.device)
    decision = decide(entries, ready.request)
    for segment in decision.segments:
        if segment.threshold is not None:
            stretch = entries.part(segment.begin, segment.end)
            found.update(stretch.indices(segment.threshold, segment.begin))
    return Signature(
        found.values(),
        scheme=scheme,
        seed=seed,
        num_parameters=m,
        support_size=decision.k,
        origin=ready.origin,
    )


def signature_of(
    indices: Tensor,
    num_parameters: int,
    *,
    num_perm: int = 256,
    seed: int = 1,
    scheme: str | None = None,
) -> Signature:
    """The signature of a support whose indices are on a device.

    Args:
        indices: K distinct integers in ``[0, M)``, ascending, shape ``(K,)``.
        num_parameters: M.
        num_perm: as for :func:`select_signature`.
        seed: likewise.
        scheme: likewise.

    Raises:
        InvalidSupport: the indices are not a vector of ascending distinct integers below M.
        InvalidSignature: h, seed or scheme are out of range.
        InvalidParameter: M is out of range.
    """
    m = check_num_parameters(num_parameters)
    scheme, h, seed = check_permutations(m, num_perm, seed, scheme)
    found = minima(scheme, h, seed, indices.device)
    checked = _ascending(indices, m)
    found.update(checked)
    return Signature(
        found.values(),
        scheme=scheme,
        seed=seed,
        num_parameters=m,
        support_size=checked.numel(),
    )


def _ascending(indices: Tensor, num_parameters: int) -> Tensor:
    """The indices as int64, checked to be a support's."""
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
