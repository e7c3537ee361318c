"""The advisories that ``make audit`` passes over."""

from __future__ import annotations

import re
import subprocess
from datetime import date
from pathlib import Path

import pytest

from tests.packaging.accepted_advisories import FILE, options

ROOT = Path(__file__).parents[2]
DAY = date(2026, 12, 31)
LINES = """# a comment

PYSEC-2026-1 2026-12-31 one: it is not called
GHSA-a-b-c 2027-01-01 two: it is not read
"""


def test_each_line_is_an_option() -> None:
    """An advisory with its day and its reason is passed over, on its last day, too."""
    expected = ["--ignore-vuln=PYSEC-2026-1", "--ignore-vuln=GHSA-a-b-c"]
    assert expected == list(options(LINES, DAY))


@pytest.mark.parametrize(
    "line",
    ["PYSEC-2026-1", "PYSEC-2026-1 2026-12-31", "PYSEC-2026-1 soon one: why", "PYSEC-2026-1 why"],
)
def test_a_line_without_day_or_reason_ends_the_audit(line: str) -> None:
    """The error names the line, and what it has to say."""
    with pytest.raises(ValueError, match=r"accepted-advisories.txt:2: say id, last day"):
        list(options(f"# a comment\n{line}\n", DAY))


def test_a_line_whose_day_is_over_ends_the_audit() -> None:
    """The advisory has to be read again."""
    with pytest.raises(ValueError, match="PYSEC-2026-1 was accepted until 2026-12-31"):
        list(options(LINES, date(2027, 1, 1)))


def test_the_lines_of_this_version_are_complete() -> None:
    """Each line that is there says its day and its reason; whether the day is over, audits say."""
    accepted = list(options(FILE.read_text(), date.min))
    assert sorted(set(accepted)) == sorted(accepted)


def test_the_audit_reads_the_lines() -> None:
    """``make audit`` gives pip-audit the options, and does not begin where a line is wrong."""
    shown = subprocess.run(
        ["make", "--dry-run", "audit"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    command = next(line for line in shown.splitlines() if "bin/pip-audit" in line)
    assert re.fullmatch(
        r'accepted="\$\(\S+ -m tests\.packaging\.accepted_advisories\)" && '
        r"\S+/pip-audit .*--requirement constraints\.txt \$accepted",
        command,
    )
