"""Figures quoted from tables that other commands have written into pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["QuotationError", "anchor", "with_figures"]

_QUOTED: Final = re.compile(r"\{([^{}|]+)\|([^{}|]+)\|([^{}|]+)\}")


class QuotationError(ValueError):
    """A figure that stands in no table of the page that it is quoted from."""


def with_figures(text: str, pages: Mapping[str, str]) -> str:
    """Replace each ``{page#heading | row | column}`` by the figure, as a link to its table.

    Args:
        text: Markdown.
        pages: the text of each page, by its path in the folder of documentation. The first cells
            of a row are divided by ``/``, and those that need not be compared are left out.

    Raises:
        QuotationError: there is no such figure.
    """

    def quoted(match: re.Match[str]) -> str:
        link, row, column = (part.strip() for part in match.groups())
        page, _, heading = link.partition("#")
        found = _figure(pages[page], heading, row.split(" / "), column)
        if found is None:
            raise QuotationError(f"{page} has no figure in the row {row!r} and column {column!r}")
        return f"[{found}]({link})"

    return _QUOTED.sub(quoted, text)


def anchor(heading: str) -> str:
    """The anchor of a heading, as a site and GitHub make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _figure(page: str, heading: str, row: list[str], column: str) -> str | None:
    """The first such cell of a section."""
    for columns, cells in _rows(page, heading):
        if column in columns and cells[: len(row)] == row:
            return cells[columns.index(column)]
    return None


def _rows(page: str, heading: str) -> Iterator[tuple[list[str], list[str]]]:
    """The columns and cells of each row of the tables of a section, with those of its parts."""
    depth, columns = 0, list[str]()
    for line in page.splitlines():
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            if 0 < level <= depth:
                return
            if not depth and anchor(line.lstrip("# ")) == heading:
                depth = level
        if not line.startswith("|"):
            columns = []
        elif depth:
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            cells = [cell.strip("| ") for cell in cells]
            if columns:
                yield columns, cells
            else:
                columns = cells
