"""docs/method.md: its figures on membership are the evidence's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("seen", ["indices", "gradients"])
def test_membership_compares_like_with_like(seen: str) -> None:
    """Both rows have the figures of Dir(0.1) after one round, rounded, by the same attack."""
    evidence = (DOCS / "evidence" / "privacy.md").read_text()
    section = evidence.partition("### Membership on Dir(0.1)")[2]
    measured = figures(section, "after one round", f"{seen}: beside own samples")
    shown = figures((DOCS / "method.md").read_text(), "samples of the client", f"from the {seen}")
    assert ["4", "16", "32", "64", "128"] == list(shown)
    assert shown == {count: f"{float(measured[count]):.2f}" for count in shown}


def figures(page: str, head: str, row: str) -> dict[str, str]:
    """The first number of each cell of a row, by the first of its column."""
    table = page[page.index(f"| {head} |") :]
    lines = (
        next(line for line in table.splitlines() if line.startswith(f"| {each} |"))
        for each in (head, row)
    )
    columns, cells = (re.findall(r"\| (\d[\d.]*)", line) for line in lines)
    return dict(zip(columns, cells, strict=True))
