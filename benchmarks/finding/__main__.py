"""``python -m benchmarks.finding [--models N] [--redis | --pages]``: measure a hub of any size."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import report
from benchmarks.finding import gates, pages, shared


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finding", description=gates.__doc__)
    parser.add_argument("--models", type=int, default=gates.MODELS)
    parser.add_argument("--largest", type=int, help="members of the largest family")
    parser.add_argument("--folder", type=Path, help="where the index is kept for the next time")
    parser.add_argument("--questions", type=int, default=60, help="of each kind")
    parser.add_argument("--redis", action="store_true", help="measure Redis beside the disk")
    parser.add_argument("--pages", action="store_true", help="measure the explorer's pages")
    options = parser.parse_args()
    if options.redis:
        table = shared.measure(options.models, options.questions)
        print(report.markdown(report.Findings([], [table]), report.machine(shared.LIBRARIES)))
        return
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(TemporaryDirectory()))
        if options.pages:
            found = pages.measure(options.models, folder)
            print(report.markdown(found, report.machine(pages.LIBRARIES)))
            return
        found = gates.measure(
            options.models, folder, questions=options.questions, largest=options.largest
        )
    print(report.markdown(found, report.machine(gates.LIBRARIES)))


if __name__ == "__main__":
    main()
