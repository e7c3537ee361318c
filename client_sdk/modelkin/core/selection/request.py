"""``SelectionRequest``: the arguments of a call of ``select_support``, unchecked.

``SelectionOptions`` are the same keywords for type checkers, where a function passes them on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from modelkin.core.importance import ImportanceKind
from modelkin.core.layout import Layout

__all__ = ["SelectionOptions", "SelectionRequest"]


class SelectionOptions(TypedDict, total=False):
    """The keywords of ``select_support``, which describes them."""

    k: int | None
    fraction: float | None
    coverage: float | None
    k_max: float | None
    layout: Layout | None
    budgets: Any
    stability: float | None
    resamples: Iterable[Any] | None
    kind: ImportanceKind | None
    base: str | None
    exclude: Sequence[str]
    order: Layout | None
    ordered: bool


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
    ordered: bool = False
