"""The guide of a newcomer's way runs line by line, with a service of its own, as in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.pages import blocks, run_python

PAGE = Path(__file__).parents[2] / "docs" / "starting.md"


@pytest.mark.slow
def test_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every Python block prints exactly the text block that follows it, if it prints."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    namespace: dict[str, Any] = {}
    printed: list[str] = []
    promised: list[str] = []
    for kind, text in blocks(PAGE.read_text()):
        if kind == "python":
            printed.append(run_python(text, str(PAGE), namespace))
        else:
            promised.append(text)
    assert promised == [each for each in printed if each]
    assert 4 == len(printed)
