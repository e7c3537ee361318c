"""The warnings of a selection, issued at the line that called modelkin."""

from __future__ import annotations

import inspect
import warnings

from modelkin.core.selection.rule import LEAST_SHARE

__all__ = [
    "SmallSupportWarning",
    "UnstableSupportWarning",
    "warn",
    "warn_if_few",
    "warn_if_sparse",
]


class SmallSupportWarning(UserWarning):
    """A support is small: few entries are positive, or very few reach the coverage asked for."""


class UnstableSupportWarning(UserWarning):
    """No allowed K reaches the stability target."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line outside modelkin that led here, across all calls within modelkin."""
    level, frame = 1, inspect.currentframe()
    while (
        frame and frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "modelkin"
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_if_sparse(k: int, num_parameters: int) -> None:
    """Warn where a coverage chose very few of the parameters, as moments of Adam often have it."""
    if 0 < k * LEAST_SHARE < num_parameters:
        warn(
            f"{k} of {num_parameters} parameters reach the coverage: the importance is so uneven "
            "that overlaps of so few say little; give a fraction, such as fraction=0.05",
            SmallSupportWarning,
        )


def warn_if_few(k: int, wanted: int, num_parameters: int) -> None:
    """Warn where fewer entries are positive than were asked for."""
    if k < wanted:
        warn(
            f"only {k} of {num_parameters} entries are positive: the support has these, not the "
            f"{wanted} asked for",
            SmallSupportWarning,
        )
