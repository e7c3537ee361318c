"""The lines of a diagnosis, by ``modelkin doctor`` and by the service's ``check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the diagnosis.

    Attributes:
        check: the thing that was checked.
        state: ``ok``, ``warn`` or ``fail``.
        detail: the finding.
        remedy: the step that mends it; empty where nothing is wrong.
    """

    check: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""
