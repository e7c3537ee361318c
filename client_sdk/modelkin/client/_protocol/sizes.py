"""How a client comes to the K of its space: what it computes itself, before and after it asks.

It never does I/O, and never cuts a finished support: which of its indices are the more important is
known only where the importance is.
"""

from __future__ import annotations

import operator
from typing import Any

from modelkin.core.support import Support
from modelkin.errors import InvalidParameter
from modelkin.selection import select_support
from modelkin.types.spaces import SupportSizePolicy

__all__ = ["chosen_by_coverage", "k_star_of", "policy_json", "resized"]


def policy_json(support_size: Any) -> dict[str, Any]:
    """What ``ensure_space`` sends for ``support_size=``, which describes it.

    Raises:
        InvalidParameter: it is neither a policy's name nor a K nor a share.
    """
    if isinstance(support_size, SupportSizePolicy):
        asked: dict[str, Any] = {"policy": support_size.policy}
        return asked if support_size.k is None else {**asked, "k": support_size.k}
    if isinstance(support_size, str) and support_size in {"free", "agreed"}:
        return {"policy": support_size}
    if isinstance(support_size, float):
        return {"policy": "fixed", "fraction": support_size}
    k = _count(support_size)
    if k is None:
        raise InvalidParameter(
            f"support_size must be 'free', 'agreed', K as an int or a share of M as a float, not "
            f"{support_size!r}",
            field="support_size",
        )
    return {"policy": "fixed", "k": k}


def k_star_of(importance: Any, coverage: float | None, k_max: float | None) -> int:
    """K* itself, or the one of an importance; raises as ``select_support`` does."""
    k = _count(importance)
    if k is None:
        return chosen_by_coverage(importance, coverage, k_max).k
    if coverage is not None or k_max is not None:
        raise InvalidParameter("coverage and k_max choose the K* of an importance, not of a count")
    return k


def chosen_by_coverage(importance: Any, coverage: float | None, k_max: float | None) -> Support:
    """The support of Algorithm 1, whose size is K*."""
    return select_support(importance, coverage=coverage, k_max=k_max)


def resized(importance: Any, chosen: Support, k: int | None) -> Support:
    """The support of K indices; ``chosen`` where that has as many, or there is no K."""
    if k is None or k == chosen.k:
        return chosen
    return select_support(importance, k=k)


def _count(value: Any) -> int | None:
    """An integer of any library, but no flag and no array."""
    if isinstance(value, bool) or hasattr(value, "__len__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
