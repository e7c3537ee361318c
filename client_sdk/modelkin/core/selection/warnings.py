"""The warnings of a selection, issued at the line that called modelkin."""

from __future__ import annotations

import sys
import warnings

__all__ = ["SmallSupportWarning", "UnstableSupportWarning", "warn"]


class SmallSupportWarning(UserWarning):
    """Fewer entries are positive than requested; zeros never enter a support."""


class UnstableSupportWarning(UserWarning):
    """No allowed K reaches the stability target."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line outside modelkin that led here, across all calls within modelkin."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "modelkin":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
