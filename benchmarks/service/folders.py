"""Measure a push of a folder of checkpoints beside one command for each of its files.

Both are commands of their own, from their start to their end, in turns, to one service on the same
machine. The files are of three families, so a folder makes three spaces.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from safetensors.numpy import save_file

from benchmarks.harness import Spread
from benchmarks.report import Findings, Row, Table, duration
from benchmarks.service.http import service
from benchmarks.service.start_environment import start_environment

LIBRARIES = ("numpy", "numba", "httpx", "fastapi", "uvicorn", "sqlalchemy")

FILES, FAMILIES = 30, 3
LAYERS, WIDTH = 12, 256
QUICK_FILES, QUICK_LAYERS = 4, 1
ROUNDS = 1
"""What is judged is a limit, which other work only makes harder to meet. The commands for each file
take minutes."""
LIMIT_S = 15.0


def run(quick: bool) -> Findings:
    """Push a folder, push it again, and push each of its files, in turns."""
    files, layers = (QUICK_FILES, QUICK_LAYERS) if quick else (FILES, LAYERS)
    whole, again, single, loads = list[float](), list[float](), list[float](), list[float]()
    with TemporaryDirectory() as place, service() as (http, _):
        url, folder = str(http.base_url), Path(place)
        parameters = _save(folder, files, layers)
        for number in range(1 if quick else ROUNDS):
            loads.append(os.getloadavg()[0])
            push = ("push", place, "--space", "auto", "--prefix", f"r{number}/")
            whole.append(_seconds([push], url))
            again.append(_seconds([push], url))
            each = [
                _one(path, f"r{number}-{path.stem[0]}", f"s{number}/{path.stem}")
                for path in sorted(folder.iterdir())
            ]
            single.append(_seconds(each, url))
    one, many = Spread.of(whole), Spread.of(single)
    ratio = Spread.of([theirs / mine for mine, theirs in zip(whole, single, strict=True)]).median
    said = f"{files} checkpoints of {parameters:,} parameters"
    row = Row(
        f"push of a folder of {said}",
        duration(one.median),
        f"a command for each: {duration(many.median)}",
        f"{ratio:.1f}×",
        f"≤ {LIMIT_S:.0f} s",
        one.median <= LIMIT_S,
    )
    facts = [
        [name, duration(spread.median), f"{duration(spread.least)} – {duration(spread.most)}"]
        for name, spread in (
            ("the folder in one command", one),
            ("the same again, where all is stored", Spread.of(again)),
            ("a command for each file", many),
        )
    ]
    load = f"load average before the rounds: {', '.join(f'{each:.1f}' for each in loads)}"
    return Findings([row], [Table(f"{said}, {load}", ["", "median", "least – most"], facts)])


def _save(folder: Path, files: int, layers: int) -> int:
    """Save checkpoints of some families; the parameters of one."""
    draw = np.random.default_rng(1)
    shapes = {"embed.weight": (1000, WIDTH)}
    shapes |= {f"layers.{at}.weight": (WIDTH, WIDTH) for at in range(layers)}
    for family in range(FAMILIES):
        named = {f"{'abc'[family]}.{name}": shape for name, shape in shapes.items()}
        base = {name: draw.standard_normal(shape, "f4") for name, shape in named.items()}
        for number in range(family, files, FAMILIES):
            tuned = {
                name: w + np.float32(0.3) * draw.standard_normal(w.shape, "f4")
                for name, w in base.items()
            }
            save_file(tuned, folder / f"{'abc'[family]}-{number}.safetensors")
    return sum(rows * columns for rows, columns in shapes.values())


def _one(path: Path, space: str, model: str) -> tuple[str, ...]:
    return ("push", str(path), "--space", space, "--create", "--model", model)


def _seconds(commands: Sequence[Sequence[str]], url: str) -> float:
    begin = time.perf_counter()
    for command in commands:
        words = [sys.executable, "-m", "modelkin", *command, "--url", url]
        subprocess.run(words, check=True, capture_output=True, env=start_environment(None))
    return time.perf_counter() - begin
