"""The list of requirements of ``examples/flower``."""

from __future__ import annotations

from pathlib import Path

from tests.soak.federations.flower_engines import FLOWER, REQUIREMENTS

ROOT = Path(__file__).resolve().parents[2] / "examples" / "flower"


def test_the_example_lists_what_its_engines_were_tried_with() -> None:
    """Every requirement of the environment of ``make flower`` is in the list, as it is there."""
    listed = (ROOT / "requirements.txt").read_text().splitlines()
    assert set(REQUIREMENTS) <= set(listed)
    assert all(f"--no-deps {each}" in (ROOT / "README.md").read_text() for each in FLOWER)
