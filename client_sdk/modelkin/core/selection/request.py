"""``SelectionRequest``: what the caller of ``select_support`` asks for, unchecked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from modelkin.core.layout import Layout

__all__ = ["SelectionRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRequest:
    """The unchecked arguments of ``select_support``, which describes them."""

    k: Any = None
    fraction: Any = None
    coverage: Any = None
    k_max: Any = None
    layout: Layout | None = None
    budgets: Any = None
    stability: Any = None
    resamples: Iterable[Any] | None = None
    kind: str | None = None
    base: str | None = None
    exclude: Sequence[str] = ()
    order: Layout | None = None
