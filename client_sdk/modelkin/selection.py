"""``select``, ``select_support`` and ``select_signature`` for arrays and for tensors on any device.

Arrays, and tensors in this machine's memory, go through numpy's or numba's kernels without a copy.
``modelkin.torch.selection`` reads a tensor on a CUDA device there, and only the K indices are
copied. The rules are those of ``modelkin.core.selection.selection``, so the answers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from modelkin.core.selection import selection, signatures
from modelkin.core.selection.entries import Entries, entries_of
from modelkin.core.support import Support

__all__ = ["resize_support", "select", "select_signature", "select_support"]

F = TypeVar("F", bound=Callable[..., Any])

DEVICE_TYPES = frozenset({"cuda"})
"""Devices on which tensors are selected in place (ROCm's are called cuda too). Tensors of all
others are copied to this machine's memory first."""


def _on_any_device(function: F) -> F:
    @wraps(function)
    def selecting(importance: Any, **options: Any) -> Any:
        if options.get("resamples") is not None:
            options["resamples"] = [_entries(resample) for resample in options["resamples"]]
        return function(_entries(importance), **options)

    return cast(F, selecting)


def _entries(importance: Any) -> Entries:
    device = getattr(getattr(importance, "device", None), "type", None)
    if device not in DEVICE_TYPES:
        return entries_of(importance)
    from modelkin.torch.selection import DeviceEntries  # a caller with such a tensor has torch

    return DeviceEntries.of(importance)


select = _on_any_device(selection.select)
select_support = _on_any_device(selection.select_support)
select_signature = _on_any_device(signatures.select_signature)


def resize_support(importance: Any, support: Support, k: int | None, **how: Any) -> Support:
    """Select a support of ``k`` indices instead.

    Args:
        importance: as for :func:`select_support`.
        support: selected from it.
        k: how many indices to select; None, or the support's own K, returns the support as it is.
        how: the other keywords with which it was selected, such as ``layout`` and ``order``.
    """
    if k is None or k == support.k:
        return support
    return select_support(importance, k=k, **how)
