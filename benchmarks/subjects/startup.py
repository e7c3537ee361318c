"""Measure start-up: the import, and the kernels' first use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.harness import Contender, Spread, race
from benchmarks.report import Findings, Table, duration

LIBRARIES = ("numpy", "numba", "httpx")

COMPILE = "import modelkin.core.kernels.fast as fast; fast.warm()"


def run(quick: bool) -> Findings:
    """Time separate processes, each from its start to its end."""
    starts = {
        "python alone": "pass",
        "import numpy": "import numpy",
        "import modelkin": "import modelkin",
    }
    result = race(
        [Contender(name, partial(_start, code)) for name, code in starts.items()],
        1 if quick else 7,
    )
    facts = {name: result.seconds(name) for name in starts}
    if not quick:
        facts |= _kernels()
    rows = [
        [name, duration(spread.median), f"{duration(spread.least)} – {duration(spread.most)}"]
        for name, spread in facts.items()
    ]
    columns = ["a process, from its start to its end", "median", "least – most"]
    return Findings([], [Table("Time to begin", columns, rows)])


def _kernels() -> dict[str, Spread]:
    """Compile all kernels into an empty folder, then load them from there."""
    with TemporaryDirectory() as folder:
        first = _start(COMPILE, NUMBA_CACHE_DIR=folder)
        later = [_start(COMPILE, NUMBA_CACHE_DIR=folder) for _ in range(5)]
    return {
        "every numba kernel, the first time ever (compiled, kept on disk)": Spread.of([first]),
        "every numba kernel, later (loaded from disk)": Spread.of(later),
    }


def _start(code: str, **variables: str) -> float:
    begin = time.perf_counter()
    environment = {**os.environ, "MODELKIN_KERNELS": "auto", **variables}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return time.perf_counter() - begin
