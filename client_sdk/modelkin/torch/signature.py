"""Signatures computed on the device of an importance or of indices, in plain torch operations.

The indices stay on the device; only the signature is copied. The values equal those of
``modelkin.core.sketching.signature.Signature.of``, bit for bit.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modelkin.core.indices import check_num_parameters
from modelkin.core.kernels.reference.probes import first_members
from modelkin.core.selection import signatures
from modelkin.core.selection.request import SelectionOptions
from modelkin.core.sketching.probe_tables import Table
from modelkin.core.sketching.schemes import ValueArray
from modelkin.core.sketching.signature import Signature
from modelkin.errors import InvalidSupport
from modelkin.torch.minima import least_hashes
from modelkin.torch.selection import DeviceEntries

__all__ = ["ascending", "select_signature", "signature_of"]


def select_signature(
    importance: Tensor,
    *,
    num_perm: int = 256,
    seed: int = 1,
    scheme: str | None = None,
    **how: Unpack[SelectionOptions],
) -> Signature:
    """``modelkin.select_signature`` in plain torch operations, on whatever device the tensor is.

    Takes the same arguments and raises the same errors. Supports of resamples, if any, are compared
    in this machine's memory.
    """
    if (resamples := how.get("resamples")) is not None:
        how["resamples"] = [DeviceEntries.of(resample) for resample in resamples]
    return signatures.select_signature(
        DeviceEntries.of(importance), num_perm=num_perm, seed=seed, scheme=scheme, **how
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
        num_perm: see :func:`select_signature`, also for ``seed`` and ``scheme``.

    Raises:
        InvalidSupport: the indices are not a vector of ascending distinct integers below M.
        InvalidSignature: h, seed or scheme are out of range.
        InvalidParameter: M is out of range.
    """
    m = check_num_parameters(num_parameters)
    members = _DeviceMembers(ascending(indices, m), m)
    return Signature.of_members(members, num_perm=num_perm, seed=seed, scheme=scheme)


class _DeviceMembers:
    """The ascending indices of a support on a device, int64."""

    question_work: float = 1500

    def __init__(self, indices: Tensor, num_parameters: int) -> None:
        self._indices = indices
        self.num_parameters = num_parameters
        self.k = indices.numel()

    def first(self, table: Table) -> npt.NDArray[np.int64]:
        return first_members(table, self._contains)

    def least(self, a: Any, b: Any) -> ValueArray:
        return least_hashes(self._indices, a, b)

    @torch.no_grad()
    def _contains(self, wanted: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        asked = torch.from_numpy(wanted.astype(np.int64)).to(self._indices.device)
        places = torch.searchsorted(self._indices, asked).clamp_(max=self.k - 1)
        answer: npt.NDArray[np.bool_] = (self._indices[places] == asked).cpu().numpy()
        return answer


def ascending(indices: Tensor, num_parameters: int) -> Tensor:
    """Check that indices are a support's, and return them as int64."""
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
