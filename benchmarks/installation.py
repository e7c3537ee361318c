"""``python -m benchmarks.installation DIST``: from an empty environment to the first neighbours.

DIST has the wheels, see "Build a release" in docs/versions.md. Each round makes an environment,
installs ``modelkin[server]`` into it, and runs five lines twice. Where a machine has other work,
a step takes longer by the clock: so the seconds of its processors stand beside it.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import report, summary
from benchmarks.report import Findings, Row, Table, duration

__all__ = ["FIVE_LINES", "Step", "findings", "main", "timed"]

FIVE_LINES: Final = """\
from modelkin import Client, Support
client = Client(":memory:")
client.ensure_space("s", num_parameters=90)
client.put_many("s", [(n, Support.from_indices([*n.encode()], 90)) for n in ("AD", "AE", "BC")])
print(client.neighbors("s", "AD"))
"""
_CLOSED: Final = "client.close()\n"
"""Without it the program ends before its service, whose work would not be counted."""
_TARGET_S: Final = 60.0


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
    parser.add_argument("dist", type=Path, help="the folder of the wheels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the pages stay as they are")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rounds = [
            _round(Path(folder), asked.dist.absolute(), keep_cache=at > 0)
            for at in range(asked.rounds + 1)
        ]
    load = os.getloadavg()[2]
    about = f"{report.machine()}; load of the last 15 minutes {load:.1f}"
    section = report.markdown(findings(rounds[0], rounds[1:]), about)
    print(section)
    if not asked.quick:
        summary.write({"installation": section})
    return 0


def timed(command: Sequence[str | Path], folder: Path, **variables: str) -> Step:
    """Run a command in a folder, without the settings of this shell."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MODELKIN_", "PYTHON"))}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=folder, env=inherited | variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Step(time.monotonic() - began, busy)


def _round(folder: Path, dist: Path, *, keep_cache: bool) -> dict[str, Step]:
    """All steps, in an environment and with kernels of their own."""
    home, cache = folder / "environment", folder / "cache"
    shutil.rmtree(home, ignore_errors=True)
    if not keep_cache:
        shutil.rmtree(cache, ignore_errors=True)
    install = ("-m", "pip", "install", "--quiet", "--find-links", dist, "modelkin[server]")
    python = home / "bin" / "python"
    program = (python, "-c", FIVE_LINES + _CLOSED)
    return {
        "python -m venv": timed((sys.executable, "-m", "venv", home), folder),
        "pip install 'modelkin[server]'": timed(
            (python, *install), folder, PIP_CACHE_DIR=str(cache)
        ),
        "five lines, while kernels are compiled": timed(program, folder),
        "five lines again": timed(program, folder),
    }


def findings(cold: dict[str, Step], warm: Sequence[dict[str, Step]]) -> Findings:
    """The figures of one round with an empty cache of pip, and of others with a full one."""
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
