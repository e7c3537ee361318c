"""``python -m studies TABLE``: make the cells of a table, and the pages of evidence from all cells.

Exit status: 0 where each gate of the table is met, 1 where one is missed, 2 for a wrong argument
and for data that are missing or damaged. Of ``real`` and ``data``, it is 3 where a package cannot
be had or has changed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from studies import page
from studies.catalogue import ALL, TABLES, Asked
from studies.cells import FOLDER, Cells
from studies.gates import gates_of
from studies.hub import Hub
from studies.lines import command as lines
from studies.loaders import published
from studies.loaders.folder import DataError
from studies.making import Task, make, make_all
from studies.papers import section as papers
from studies.real.command import FAMILIES, measure
from studies.real.downloads import CACHE
from studies.samples import samples_of
from studies.sections.curves import pictures
from studies.settings import CLIENTS, DATA, FILES, LARGE, NETWORKS, Setting, fits
from studies.tables import disclosure, retrieval

_QUICK: Final[tuple[Task, ...]] = (
    (retrieval.NAME, Setting(clients=20)),
    (disclosure.NAME, Setting(clients=20)),
)
_MOST_PROCESSES: Final = 4
"""Unless more are asked for: each takes a gigabyte, with its service."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of the studies."""
    asked = _options(arguments)
    try:
        return _done(asked)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _done(asked: argparse.Namespace) -> int:
    if asked.table == "page":
        return _written(asked.check)
    if asked.table == "real":
        status = measure(asked.family, asked.cache)
        return _written(check=False) or status
    if asked.table == "data":
        return published.fetch(asked.cache)
    if asked.table == "lines":
        status = lines.measure(asked.cell, processes=asked.processes)
        return _written(check=False) or status
    return _studied(asked)


def _studied(asked: argparse.Namespace) -> int:
    if asked.data in FILES:
        samples_of(Setting(asked.data, asked.network, data_dir=asked.data_dir))  # before a start
    if asked.quick:
        return _quick()
    wanted = Asked(
        asked.table,
        asked.data,
        asked.network,
        asked.clients,
        asked.seeds,
        asked.data_dir,
        asked.samples,
    )
    for line in make_all(Cells(), [*wanted.cells()], asked.processes):
        print(line, flush=True)
    _written(check=False)
    missed = 0
    if asked.data in FILES:
        return 0  # gates are of digits
    for gate in gates_of([study.NAME for study in wanted.studies]):
        print(gate)
        missed += not gate.met
    return 1 if missed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument(
        "table",
        choices=(*TABLES, ALL, "real", "data", "lines", "page"),
        help="all makes every cell of federations, real measures published checkpoints, which it "
        "downloads, data downloads data sets, lines trains small networks; page writes "
        "docs/evidence.md and docs/evidence/ from the cells that there are, and docs/papers.md "
        "from these pages",
    )
    parser.add_argument("--data", choices=DATA, default="digits")
    parser.add_argument(
        "--data-dir",
        type=Path,
        help=f"the folder of data that come as files ({', '.join(FILES)}); by default where "
        "data has put them",
    )
    parser.add_argument(
        "--samples", type=_positive, default=0, help="of each client, of data that come as files"
    )
    parser.add_argument("--network", choices=(*NETWORKS, *LARGE), default="cnn")
    parser.add_argument(
        "--clients", type=int, choices=CLIENTS, default=40, help="but of table 1: it has 20"
    )
    parser.add_argument("--seeds", type=_positive, default=10, help="0 to one less; by default 10")
    parser.add_argument(
        "--processes",
        type=_positive,
        default=min(len(os.sched_getaffinity(0)), _MOST_PROCESSES),
        help=f"that make cells; by default one a core, and at most {_MOST_PROCESSES}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="two cells in a minute, kept nowhere; no gates"
    )
    parser.add_argument(
        "--check", action="store_true", help="of page: exit 1 where one is not made of its cells"
    )
    parser.add_argument(
        "--family", action="append", default=[], choices=FAMILIES, help="of real; by default all"
    )
    parser.add_argument(
        "--cell", action="append", default=[], choices=lines.NAMES, help="of lines; by default all"
    )
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="of real and data: the folder for packages"
    )
    asked = parser.parse_args(arguments)
    if not fits(asked.data, asked.network):
        fitting = [each for each in (*NETWORKS, *LARGE) if fits(asked.data, each)]
        parser.error(f"{asked.network} does not read {asked.data}: take {' or '.join(fitting)}")
    if asked.samples and asked.data not in FILES:
        parser.error(f"--samples is of data that come as files: {', '.join(FILES)}")
    if asked.data in FILES and asked.data_dir is None:
        asked.data_dir = published.folder_of(asked.data)
        if asked.data_dir is None:
            parser.error(f"{asked.data} comes as files: {_how_to_have(asked.data)}")
    return asked


def _how_to_have(data: str) -> str:
    named = "name their folder with --data-dir"
    shipped = data in published.sets()
    return f"{named}, or download them with python -m studies data" if shipped else named


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _quick() -> int:
    with TemporaryDirectory() as folder, Hub() as hub:
        cells = Cells(Path(folder))
        for task in _QUICK:
            print(make(cells, task, hub), flush=True)
        print("\n".join(page.written(cells, judged=False).values()))
    return 0


def _written(check: bool) -> int:
    made = page.written(Cells())
    made |= {papers.PAGE: page.joined(papers.blocks(made))}
    made |= {FOLDER / name: text for name, text in pictures(Cells()).items()}
    for path, text in made.items():
        if check and not (path.exists() and path.read_text() == text):
            print(f"{path} is not made of its cells: run python -m studies page", file=sys.stderr)
            return 1
        if not check:
            path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
