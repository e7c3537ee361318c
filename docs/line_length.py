"""The length of lines of the pages, for what writes or checks them."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_LINE_LENGTH"]

MAX_LINE_LENGTH: Final = 120
"""The most characters of a line of a page."""
