"""``select`` and ``select_support`` for an importance wherever it lies.

Arrays, and tensors in this machine's memory, go through numpy's or numba's kernels without a copy.
A tensor on a CUDA device is read there by ``modelkin.torch.selection``, and only the K indices
cross over. The rules are those of ``modelkin.core.selection.selection``, so the answers are the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from modelkin.core.selection import selection
from modelkin.core.selection.entries import Entries, entries_of

__all__ = ["select", "select_support"]

F = TypeVar("F", bound=Callable[..., Any])

ON_THE_DEVICE = frozenset({"cuda"})
"""Devices whose tensors are selected where they lie (ROCm's are called cuda too). Tensors of all
others are copied to this machine's memory first."""


def _wherever_it_lies(function: F) -> F:
    @wraps(function)
    def selecting(importance: Any, **how: Any) -> Any:
        if how.get("resamples") is not None:
            how["resamples"] = [_entries(resample) for resample in how["resamples"]]
        return function(_entries(importance), **how)

    return cast(F, selecting)


def _entries(importance: Any) -> Entries:
    device = getattr(getattr(importance, "device", None), "type", None)
    if device not in ON_THE_DEVICE:
        return entries_of(importance)
    from modelkin.torch.selection import DeviceEntries  # whoever holds such a tensor has torch

    return DeviceEntries.of(importance)


select = _wherever_it_lies(selection.select)
select_support = _wherever_it_lies(selection.select_support)
