"""The page of averages in shards runs line by line and prints what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.docs.pages import blocks, run_python

PAGE = Path(__file__).parents[2] / "docs" / "sharing.md"


def test_the_page() -> None:
    """Every Python block prints exactly the text block that follows it."""
    namespace: dict[str, Any] = {}
    printed: list[str] = []
    promised: list[str] = []
    for kind, text in blocks(PAGE.read_text()):
        if kind == "python":
            printed.append(run_python(text, str(PAGE), namespace))
        elif kind == "text":
            promised.append(text)
    assert promised == printed
    assert 4 == len(printed)
