"""Cells of tables: similarities, their errors, kappa, times, and a dash for a missing value."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from modelkin._terminal_text import minute_of
from modelkin.cli.style import BAD, FAINT, GOOD, WEAK, Styled
from modelkin.types.vocabulary import Estimate

__all__ = [
    "Estimated",
    "count_text",
    "error_text",
    "part_text",
    "score_cells",
    "share_text",
    "state_text",
    "text_or_dash",
    "time_text",
]

_NOTHING: Final = Styled("-", FAINT)
_STYLE_OF: Final = {
    **dict.fromkeys(("ok", "yes", "succeeded", "enabled", "valid", "consistent", "done"), GOOD),
    **dict.fromkeys(("warn", "running", "queued", "pending", "cancelled", "unsure"), WEAK),
    **dict.fromkeys(("fail", "failed", "disabled", "expired", "revoked", "mismatch", "cycle"), BAD),
}
"""The style of each word for a state or a verdict."""


class Estimated(Protocol):
    """A model with its similarity to another, as neighbours, donors and kin are."""

    @property
    def model(self) -> str: ...
    @property
    def similarity(self) -> float: ...
    @property
    def estimate(self) -> Estimate: ...
    @property
    def standard_error(self) -> float: ...
    @property
    def kappa(self) -> float | None: ...
    @property
    def covered(self) -> float | None: ...


def score_cells(items: Sequence[Estimated]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns of a table of similar models, and the cells of each row.

    The column ``COVERED`` is there if a pair has only a part of the space in common.
    """
    columns = ("MODEL", "SIMILARITY", "ERROR", "KAPPA")
    rows: list[tuple[str, ...]] = [
        (
            *(item.model, share_text(item.similarity)),
            *(error_text(item.estimate, item.standard_error), share_text(item.kappa)),
        )
        for item in items
    ]
    if all(item.covered is None for item in items):
        return columns, rows
    parts = (part_text(item.covered) for item in items)
    return (*columns, "COVERED"), [(*row, part) for row, part in zip(rows, parts, strict=True)]


def part_text(share: float | None) -> str:
    """A share of the parameters of a space, ``95.2%``."""
    return _NOTHING if share is None else f"{share:.1%}"


def share_text(value: float | None) -> str:
    """A similarity or another number near 0 to 1, with three digits and without a sign of 0."""
    return _NOTHING if value is None else f"{round(value, 3) + 0.0:.3f}"


def error_text(estimate: Estimate, standard_error: float) -> str:
    """``exact``, or the standard error of an estimate."""
    return "exact" if estimate == "exact" else f"±{standard_error:.3f}"


def count_text(count: int | None) -> str:
    """A count with separators, ``1,234``."""
    return _NOTHING if count is None else f"{count:,}"


def text_or_dash(text: str | None) -> str:
    """A text as it is, or a dash."""
    return _NOTHING if text is None else text


def time_text(moment: datetime | None) -> str:
    """A point in time to the minute, in UTC."""
    return _NOTHING if moment is None else minute_of(moment)


def state_text(word: str) -> str:
    """A word for a state in green, yellow or red; other words as they are."""
    style = _STYLE_OF.get(word)
    return word if style is None else Styled(word, style)
