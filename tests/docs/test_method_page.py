"""docs/method.md: its figures on membership are the evidence's."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_membership_compares_like_with_like() -> None:
    """Each row has both figures of Dir(0.1) beside the same samples, rounded."""
    evidence = (DOCS / "evidence" / "privacy.md").read_text()
    section = evidence.partition("## What a support gives away")[2].partition("### Dir(0.3)")[0]
    rows = re.findall(
        r"\| (of [\w ]+) \| (0\.\d+) \| (0\.\d+) \|", (DOCS / "method.md").read_text()
    )
    assert ["of the same classes", "of any class"] == [beside for beside, _, _ in rows]
    for beside, *shown in rows:
        measured = [
            re.findall(rf"\| membership \| {seen}, {beside} \| (0\.\d+)", section)[0]
            for seen in ("indices", "gradients")
        ]
        assert shown == [f"{float(each):.2f}" for each in measured]
