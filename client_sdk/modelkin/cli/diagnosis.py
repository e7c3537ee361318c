"""The lines of a diagnosis: what was inspected, how it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the diagnosis.

    Attributes:
        check: what was inspected.
        state: ``ok``, ``warn`` or ``fail``.
        detail: what was found.
        remedy: what to do; empty where nothing is wrong.
    """

    check: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""
