"""docs/threat-model.md: its tables of those who hide and of those who forge are the evidence's."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_of_hiding_and_forging_are_the_evidences() -> None:
    """Row by row, so that a figure that is measured again is corrected on both pages."""
    evidence = (DOCS / "evidence" / "lines.md").read_text()
    _, _, measured = evidence.partition("## Who hides, and who forges\n")
    page = (DOCS / "threat-model.md").read_text()
    about = page.partition("### One who hides, or forges,")[2].partition("\n### ")[0]
    rows = [line.strip() for line in about.splitlines() if line.startswith("  |")]
    assert sorted(line for line in measured.splitlines() if line.startswith("|")) == sorted(rows)
