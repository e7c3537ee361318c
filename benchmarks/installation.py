"""``python -m benchmarks.installation``: from an empty environment to the first neighbours.

Each round makes an environment, installs this clone into it by the line of the README, and runs
five lines twice. Where a machine has other work, a step takes longer by the clock: so the seconds
of its processors stand beside it. The last environment gets ``modelkin[server]``, too: what it adds
on the disk, and what it saves, is measured there.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import report, summary
from benchmarks.report import Findings, Row, Table, duration
from benchmarks.service.installed import asked_of_both_loops, loop_rows, sizes, table_of_sizes

__all__ = ["COMPLETE", "FIVE_LINES", "LINE", "Step", "findings", "main", "timed"]

FIVE_LINES: Final = """\
from modelkin import Client, Support
client = Client(":memory:")
client.ensure_space("s", num_parameters=90)
client.put_many("s", [(n, Support.from_indices([*n.encode()], 90)) for n in ("AD", "AE", "BC")])
print(client.neighbors("s", "AD"))
"""
_CLOSED: Final = "client.close()\n"
"""Without it the program ends before its service, whose work would not be counted."""
ROOT: Final = Path(__file__).parents[1]
LINE: Final = "pip install ./client_sdk ."
"""The line of the README; a test reads it there."""
COMPLETE: Final = "pip install 'modelkin[server]'"
_PIP: Final = ("-m", "pip", "install", "--quiet")
_TARGET_S: Final = 60.0
_TARGET_MB: Final = 300.0


@dataclass(frozen=True, slots=True)
class Step:
    """The figures of one step.

    Attributes:
        seconds: by the clock.
        busy: seconds of all processors.
    """

    seconds: float
    busy: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the figures into their page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.installation", description="Time an installation."
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the pages stay as they are")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rounds = [_round(place, keep_cache=at > 0) for at in range(asked.rounds + 1)]
        light = sizes(place / "environment")
        python = _python(place)
        added = timed(
            (python, *_PIP, "modelkin[server]"), place, PIP_CACHE_DIR=str(place / "cache")
        )
        complete = sizes(place / "environment")
        loops = asked_of_both_loops(python, place, _inherited(), asked.rounds)
    found = findings(rounds[0], rounds[1:], light)
    found.rows.extend(loop_rows(loops))
    found.tables.append(table_of_sizes(light, complete))
    found.tables[0].rows.append([COMPLETE, "", "", duration(added.seconds), duration(added.busy)])
    load = os.getloadavg()[2]
    about = f"{report.machine()}; load of the last 15 minutes {load:.1f}"
    section = report.markdown(found, about)
    print(section)
    if not asked.quick:
        summary.write({"installation": section})
    return 0


def timed(command: Sequence[str | Path], folder: Path, **variables: str) -> Step:
    """Run a command in a folder, without the settings of this shell."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=folder, env=_inherited() | variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Step(time.monotonic() - began, busy)


def _inherited() -> dict[str, str]:
    """The variables of this shell, without those of modelkin and Python."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("MODELKIN_", "PYTHON"))}


def _python(folder: Path) -> Path:
    return folder / "environment" / "bin" / "python"


def _round(folder: Path, *, keep_cache: bool) -> dict[str, Step]:
    """All steps, in an environment of their own."""
    home, cache = folder / "environment", folder / "cache"
    shutil.rmtree(home, ignore_errors=True)
    if not keep_cache:
        shutil.rmtree(cache, ignore_errors=True)
    line = (*_PIP, ROOT / "client_sdk", ROOT)
    program = (_python(folder), "-c", FIVE_LINES + _CLOSED)
    return {
        "python -m venv": timed((sys.executable, "-m", "venv", home), folder),
        LINE: timed((_python(folder), *line), folder, PIP_CACHE_DIR=str(cache)),
        "five lines": timed(program, folder),
        "five lines again": timed(program, folder),
    }


def findings(
    cold: dict[str, Step], warm: Sequence[dict[str, Step]], packages: Mapping[str, float]
) -> Findings:
    """The figures of one round with an empty cache of pip, and of others with a full one.

    Args:
        cold: the steps of the first round.
        warm: those of each other.
        packages: the megabytes of each on the disk.
    """
    middle = {
        name: Step(
            statistics.median(each[name].seconds for each in warm),
            statistics.median(each[name].busy for each in warm),
        )
        for name in cold
    }
    rows = [
        Row(
            f"from an empty environment to the first neighbours, {cache}",
            duration(sum(step.seconds for step in steps)),
            "",
            "",
            f"≤ {_TARGET_S:.0f} s",
            sum(step.seconds for step in steps) <= _TARGET_S,
        )
        for cache, steps in (
            ("pip's cache full", _first(middle)),
            ("pip's cache empty", _first(cold)),
        )
    ]
    size = sum(packages.values())
    rows.append(
        Row(
            "megabytes of that environment",
            f"{size:.0f} MB",
            "",
            "",
            f"≤ {_TARGET_MB:.0f} MB",
            size <= _TARGET_MB,
        )
    )
    lines = [
        [name, *(duration(x) for x in (*_both(cold[name]), *_both(middle[name])))] for name in cold
    ]
    columns = [
        "step",
        "cache empty",
        "its processors",
        f"cache full, median of {len(warm)}",
        "its processors",
    ]
    return Findings(rows, [Table("Installation", columns, lines)])


def _first(steps: dict[str, Step]) -> list[Step]:
    """The steps up to the first neighbours."""
    return list(steps.values())[:3]


def _both(step: Step) -> tuple[float, float]:
    return step.seconds, step.busy


if __name__ == "__main__":
    sys.exit(main())
