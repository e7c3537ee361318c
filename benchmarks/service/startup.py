"""Measure start-up: the import, the first calls, the kernels, and the service."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Contender, Race, Spread, race
from benchmarks.report import Findings, Row, Table, duration
from benchmarks.service import service_start
from benchmarks.service.start_environment import start_environment
from modelkin.core.kernels.choice import kernels

LIBRARIES = ("numpy", "numba", "llvmlite", "httpx", "fastapi", "sqlalchemy")

IMPORT = "import modelkin"
CALLED = "import modelkin, select_support, signature, similarity"
CALLS = """
import modelkin
support = modelkin.select_support([float(i % 997) for i in range(10_000)], k=800)
support.signature()
modelkin.similarity(support, support)
"""
COMPILE = "import modelkin.core.kernels.fast as fast; fast.warm()"


def run(quick: bool) -> Findings:
    """Time separate processes, each from its start to its end, then the service."""
    kernels().warm()
    starts = {
        "python alone": "pass",
        "import numpy": "import numpy",
        IMPORT: IMPORT,
        CALLED: CALLS,
    }
    with TemporaryDirectory() as place:
        bytecode = None if quick else Path(place)
        start = partial(_start, bytecode)
        if not quick:
            start(CALLS)  # the bytecode is made
        rounds = 1 if quick else None  # of a quick run, without one to warm up
        result = race(
            [Contender(name, partial(start, code), rounds=rounds) for name, code in starts.items()],
            rounds or 7,
        )
        facts = {name: result.seconds(name) for name in starts}
        if not quick:
            facts |= _kernels(start)
        service = service_start.measured(quick, bytecode)
    rows = [
        [name, duration(spread.median), f"{duration(spread.least)} – {duration(spread.most)}"]
        for name, spread in facts.items()
    ]
    columns = ["a process, from its start to its end", "median", "least – most"]
    return Findings([*_judged(result), *service], [Table("Time to begin", columns, rows)])


def _judged(result: Race) -> list[Row]:
    whole = result.seconds(IMPORT).median
    pairs = zip(result.samples[CALLED], result.samples[IMPORT], strict=True)
    first = max(0.0, Spread.of([called - imported for called, imported in pairs]).median)
    numpy = f"import numpy: {duration(result.seconds('import numpy').median)}"
    return [
        Row(
            "SDK: import modelkin, a whole process",
            duration(whole),
            numpy,
            "",
            "≤ 0.2 s",
            whole <= 0.2,
        ),
        Row(
            "SDK: the first calls of a process, after the import",
            duration(first),
            "",
            "",
            "≤ 0.8 s",
            first <= 0.8,
        ),
    ]


def _kernels(start: Callable[..., float]) -> dict[str, Spread]:
    """Compile all kernels into an empty folder, then load them from there."""
    with TemporaryDirectory() as folder:
        first = start(COMPILE, NUMBA_CACHE_DIR=folder)
        later = [start(COMPILE, NUMBA_CACHE_DIR=folder) for _ in range(5)]
    return {
        "every numba kernel, the first time ever (compiled, kept on disk)": Spread.of([first]),
        "every numba kernel, later (loaded from disk)": Spread.of(later),
    }


def _start(bytecode: Path | None, code: str, **variables: str) -> float:
    kept = start_environment(bytecode)
    begin = time.perf_counter()
    environment = {**kept, "MODELKIN_KERNELS": "auto", **variables}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return time.perf_counter() - begin
