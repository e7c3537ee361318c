"""``python -m tests.packaging.accepted_advisories``: print the options of ``make audit``.

Each line of ``accepted-advisories.txt`` names an advisory, the last day on which it is passed over,
and why it does not reach modelkin. A line that lacks one of these, or whose day is over, ends the
audit: the advisory has to be read again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

__all__ = ["FILE", "options"]

FILE = Path(__file__).parents[2] / "accepted-advisories.txt"


def options(lines: str, today: date) -> Iterator[str]:
    """The options that have pip-audit pass over the advisories of these lines.

    Raises:
        ValueError: a line is not complete, or its day is over.
    """
    for number, line in enumerate(lines.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{FILE.name}:{number}"
        try:
            advisory, day, _why = line.split(maxsplit=2)
            last = date.fromisoformat(day)
        except ValueError:
            raise ValueError(f"{where}: say id, last day (YYYY-MM-DD) and reason") from None
        if today > last:
            raise ValueError(f"{where}: {advisory} was accepted until {last}: read it again")
        yield f"--ignore-vuln={advisory}"


if __name__ == "__main__":
    try:
        sys.stdout.write(" ".join(options(FILE.read_text(), datetime.now(UTC).date())) + "\n")
    except ValueError as error:
        sys.exit(str(error))
