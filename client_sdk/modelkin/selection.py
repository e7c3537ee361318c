"""``select`` and ``select_support`` for an importance wherever it lies.

Arrays, and tensors in this machine's memory, go through numpy's or numba's kernels without a copy.
A tensor on a CUDA device is read there by ``modelkin.torch.selection``, and only the K indices
cross over. The rules of a selection are ``modelkin.core.selection``'s, so the answers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from modelkin.core import selection
from modelkin.core.entries import Entries, entries_of

__all__ = ["select", "select_support"]

P = ParamSpec("P")
R = TypeVar("R")

ON_THE_DEVICE = frozenset({"cuda"})
"""Devices that select for themselves (ROCm's are called cuda too). Tensors of all others are copied
to this machine's memory first."""


def _wherever_it_lies(
    function: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]:
    @wraps(function)
    def selecting(importance: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        resamples: Any = kwargs.get("resamples")
        if resamples is not None:
            kwargs["resamples"] = (_entries(resample) for resample in resamples)
        return function(_entries(importance), *args, **kwargs)

    return selecting


def _entries(importance: Any) -> Entries:
    device = getattr(getattr(importance, "device", None), "type", None)
    if device in ON_THE_DEVICE:  # whoever holds such a tensor has torch
        from modelkin.torch.selection import DeviceEntries

        return DeviceEntries.of(importance)
    return entries_of(importance)


select = _wherever_it_lies(selection.select)
select_support = _wherever_it_lies(selection.select_support)
