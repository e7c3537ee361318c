"""Colours that readers with any colour vision distinguish, on light and on dark ground.

Source: Okabe and Ito 2008, "Color Universal Design"; the order has the most different ones first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DARK", "GREY", "LIGHT", "PALETTE", "Theme"]

PALETTE: Final = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#8C8C8C",
)
GREY: Final = len(PALETTE) - 1
"""The colour of points without a group, or of a group beyond the palette."""


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of everything but data, and the colour scale of matrices."""

    ground: str
    ink: str
    faint: str
    scale: str


LIGHT: Final = Theme("#ffffff", "#1f2328", "#d0d7de", "cividis")
DARK: Final = Theme("#0d1117", "#e6edf3", "#30363d", "cividis")
