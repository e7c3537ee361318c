"""``python -m benchmarks [SUBJECT ...] [--quick] [--out FILE]``: measure, and write the page."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Protocol, cast

from benchmarks import report
from benchmarks.report import Findings
from benchmarks.subjects import (
    adapters,
    buckets,
    chance,
    clusterings,
    crowd,
    donors,
    hooks,
    http,
    noop,
    overlaps,
    retrieval,
    scale,
    scan,
    selection,
    signature,
    startup,
    stop_list,
    ties,
    wire,
    writes,
)

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


class Subject(Protocol):
    """A module of this package that measures something."""

    LIBRARIES: tuple[str, ...]
    """The distributions whose versions its figures depend on."""

    def run(self, quick: bool) -> Findings:
        """Measure the figures; quick ones have tiny sizes and only show that it works."""


SUBJECTS: dict[str, Subject] = {
    name: cast(Subject, module)
    for name, module in {
        "signature": signature,
        "selection": selection,
        "wire": wire,
        "retrieval": retrieval,
        "scale": scale,
        "scan": scan,
        "ties": ties,
        "overlaps": overlaps,
        "chance": chance,
        "buckets": buckets,
        "stop_list": stop_list,
        "clusterings": clusterings,
        "donors": donors,
        "adapters": adapters,
        "startup": startup,
        "noop": noop,
        "http": http,
        "writes": writes,
        "crowd": crowd,
        "hooks": hooks,
    }.items()
}


def main(arguments: list[str] | None = None) -> int:
    """Measure the given subjects, print their sections, and write them into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subject", nargs="*", help=f"any of {', '.join(SUBJECTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; the page stays as it is")
    parser.add_argument("--out", type=Path, help="also write the sections, alone, to this file")
    options = parser.parse_args(arguments)
    if unknown := set(options.subject) - set(SUBJECTS):
        parser.error(f"no subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    sections = {name: measured(name, options.quick) for name in options.subject or SUBJECTS}
    if options.out:
        options.out.write_text("\n".join(f"## {name}\n\n{text}" for name, text in sections.items()))
    if not options.quick:
        page = PAGE.read_text()
        for name, section in sections.items():
            page = report.replaced(page, name, section)
        PAGE.write_text(page)
    return 0


def measured(name: str, quick: bool) -> str:
    """The section of one subject, printed too."""
    begin = time.perf_counter()
    subject = SUBJECTS[name]
    section = report.markdown(subject.run(quick), report.machine(subject.LIBRARIES))
    print(f"## {name}, {time.perf_counter() - begin:.0f} s\n\n{section}", flush=True)
    return section


if __name__ == "__main__":
    sys.exit(main())
