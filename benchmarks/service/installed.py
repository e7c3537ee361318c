"""What an installation has on the disk, and what its service answers with either loops."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from benchmarks.harness import Spread
from benchmarks.report import Row, Table, range_of

__all__ = ["asked_of_both_loops", "loop_rows", "sizes", "table_of_sizes"]

_LARGE_MB: Final = 9.0
"""Packages below that share a row."""
MODELS: Final = 3_000
_ASKED: Final = f"""\
import json, os, statistics, time
import numpy as np
from modelkin import Client, Support
from modelkin.core.kernels.choice import kernels
count, size, parameters = {MODELS}, 5_000, 100_000
draw = np.random.default_rng(1)
bases = [draw.permutation(parameters) for _ in range(10)]
def support(at):
    own = np.concatenate([draw.permutation(size)[: size * 3 // 4], draw.integers(size, parameters, size // 4)])
    return Support.from_indices(np.unique(bases[at % 10][own]), parameters)
kernels().warm()
made = [(f"m{{at}}", support(at)) for at in range(count)]
took = {{}}
def timed(name, call):
    took.setdefault(name, []).append(time.perf_counter())
    call()
    took[name][-1] = time.perf_counter() - took[name][-1]
with Client(":memory:") as client:
    client.ensure_space("s", num_parameters=parameters)
    timed("{MODELS:,} models put", lambda: client.put_many("s", made))
    client.neighbors("s", "m0"), client.lineage("s", "m0")
    for at in range(1, 30):
        timed("neighbours", lambda: client.neighbors("s", f"m{{at}}"))
        timed("lineage", lambda: client.lineage("s", f"m{{at}}"))
    print(json.dumps({{name: statistics.median(each) for name, each in took.items()}}))
"""  # noqa: E501 - a program of another environment


def sizes(environment: Path) -> dict[str, float]:
    """The megabytes of each distribution of an environment, by its list of files, bytecode too."""
    [packages] = environment.glob("lib/python*/site-packages")
    found: dict[str, float] = {}
    for each in distributions(path=[str(packages)]):
        places = (Path(str(each.locate_file(file))) for file in each.files or ())
        found[each.name] = sum(place.stat().st_size for place in places if place.is_file()) / 1e6
    return found


def table_of_sizes(light: Mapping[str, float], complete: Mapping[str, float]) -> Table:
    """Large packages by size, and all others in one row."""
    large = sorted(
        (name for name in complete if complete[name] >= _LARGE_MB), key=lambda name: -complete[name]
    )
    rows = [[name, _mb(light.get(name, 0.0)), _mb(complete[name])] for name in large]
    rest = [
        sum(size for name, size in each.items() if name not in large) for each in (light, complete)
    ]
    rows.append([f"{len(complete.keys() - large)} others", *map(_mb, rest)])
    rows.append(["all", *(_mb(sum(each.values())) for each in (light, complete))])
    return Table("MB on the disk", ["package", "one line", "with `modelkin[server]`"], rows)


def _mb(size: float) -> str:
    return f"{size:.0f}" if size else ""


def asked_of_both_loops(
    python: Path, folder: Path, inherited: Mapping[str, str], rounds: int
) -> list[dict[str, dict[str, float]]]:
    """Seconds of each call by numba's loops and by numpy's, in turn."""
    return [
        {
            loops: json.loads(
                subprocess.run(
                    (python, "-c", _ASKED),
                    check=True,
                    cwd=folder,
                    env={**inherited, "MODELKIN_KERNELS": loops},
                    stdout=subprocess.PIPE,
                ).stdout
            )
            for loops in ("fast", "reference")
        }
        for _ in range(rounds)
    ]


def loop_rows(rounds: list[dict[str, dict[str, float]]]) -> list[Row]:
    """How much longer each call takes without numba, in a round."""
    return [
        Row(
            f"without numba: {name}",
            f"{1e3 * rounds[0]['reference'][name]:.3g} ms",
            f"with numba: {1e3 * rounds[0]['fast'][name]:.3g} ms",
            range_of(Spread.of([each["reference"][name] / each["fast"][name] for each in rounds])),
        )
        for name in rounds[0]["fast"]
    ]
