"""What is drawn at random is drawn a few times in the tests, and as often as said in a soak."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.repetitions import repetitions

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("soak", [None, "", "0"])
def test_few_by_default(soak: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth, or what the test says."""
    monkeypatch.delenv("SOAK", raising=False)
    if soak is not None:
        monkeypatch.setenv("SOAK", soak)
    assert (1000, 60) == (repetitions(10_000), repetitions(1000, few=60))


def test_all_of_them_in_a_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the few are."""
    monkeypatch.setenv("SOAK", "1")
    assert (10_000, 1000) == (repetitions(10_000), repetitions(1000, few=60))


def test_the_page_has_a_row_for_each_program_of_make_soak() -> None:
    """What is run for longer, and what it found, stands in docs/reliability.md."""
    run = re.findall(
        r"-m tests\.soak\.([\w.]+)$", (TESTS.parent / "Makefile").read_text(), re.MULTILINE
    )
    assert len(run) > 10
    page = (TESTS.parent / "docs" / "reliability.md").read_text()
    assert {*run} <= {*re.findall(r"^\| `([\w.]+)`", page, re.MULTILINE)}


def test_make_soak_runs_every_test_that_repeats() -> None:
    """It finds them by the line that imports the number."""
    makefile = (TESTS.parent / "Makefile").read_text()
    searched = re.findall(
        r"^\tSOAK=1 .* -m pytest .*grep -rl '(.+?)' tests", makefile, re.MULTILINE
    )
    assert 1 == len(searched)
    texts = {path: path.read_text() for path in TESTS.rglob("test_*.py")}
    repeating = {path for path, text in texts.items() if re.search(r"\brepetitions\(", text)}
    assert len(repeating) > 5
    assert repeating == {path for path, text in texts.items() if searched[0] in text}
