"""Measure the start of a service and what it holds while idle; part of the subject ``startup``."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np

from benchmarks.report import Row, duration
from benchmarks.service.http import ROOT, listening_address
from benchmarks.service.start_environment import start_environment
from modelkin import Client, Support
from modelkin.core.kernels.choice import kernels

M, K = 1_000_000, 10_000
SPACE = "bench"
_IDLE_S = 5
"""Seconds after the start, for what is done in the background."""
_COPY_MODELS = """
WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {n})
INSERT INTO models (tenant_id, space_id, name, kind, support_size, revision, version, attributes,
                    created_at, updated_at, content_id)
SELECT tenant_id, space_id, 'made-' || i, kind, support_size, 1, version + i, attributes,
       created_at, updated_at, content_id
FROM (SELECT * FROM models ORDER BY id DESC LIMIT 1), numbers
"""
_COPY_SIGNATURES = """
INSERT INTO signatures (model_id, "values")
SELECT id, randomblob(1024) FROM models WHERE name LIKE 'made-%'
"""
_COUNT = "UPDATE spaces SET signatures = signatures + {n}, version = version + {n}"


def measured(quick: bool, bytecode: Path | None) -> list[Row]:
    """Start it on new stores, on an empty one, and on one with many models.

    Args:
        quick: with fewer models, and once each.
        bytecode: the folder where the processes keep it, see :func:`start_environment`.
    """
    kernels().warm()  # compiled once for the machine, as the first start does
    models = 500 if quick else 1_000_000
    with TemporaryDirectory() as place:
        folder, started = _store(place, "first"), partial(_started, bytecode)
        if not quick:
            started(folder)  # the bytecode is made
        new = [started(_store(place, f"new-{i}"))[0] for i in range(0 if quick else 5)]
        idle = 0 if quick else _IDLE_S
        rounds = [started(folder, idle=idle) for _ in range(1 if quick else 5)]
        seconds = sorted(each[0] for each in rounds)
        memory = max(each[1] for each in rounds)
        rows = [
            _row("service: ready on an empty store", seconds[len(seconds) // 2], 1.5),
            Row(
                "service: memory while idle, all processes (PSS)",
                f"{memory / 1e6:.0f} MB",
                "target",
                "",
                "≤ 150 MB",
                memory <= 150e6,
            ),
        ]
        if new:
            rows.insert(1, _row("service: ready on a new store", sorted(new)[len(new) // 2], 1.5))
        _fill(bytecode, folder, models)
        seconds = sorted(started(folder, query=True)[0] for _ in range(1 if quick else 3))
        many = f"service: ready on {models:,} models, and a query answered"
        return [*rows, _row(many, seconds[len(seconds) // 2], 5)]


def _store(place: str, name: str) -> Path:
    folder = Path(place) / name
    folder.mkdir(exist_ok=True)
    return folder


def _row(figure: str, seconds: float, target: float) -> Row:
    return Row(figure, duration(seconds), "target", "", f"≤ {duration(target)}", seconds <= target)


@contextmanager
def _service(bytecode: Path | None, folder: Path) -> Iterator[tuple[str, int, float]]:
    """A service on this folder: its address, its process, and when it began."""
    kept = start_environment(bytecode)
    environment = {k: v for k, v in kept.items() if not k.startswith("MODELKIN_")}
    command = [sys.executable, "-m", "app", f"--database-url=sqlite:///{folder}/m.db", "--port=0"]
    log, begin = folder / "log", time.perf_counter()
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=file)
    try:
        yield listening_address(process, log), process.pid, begin
    finally:
        process.terminate()
        process.wait(60)


def _started(
    bytecode: Path | None, folder: Path, *, query: bool = False, idle: float = 0
) -> tuple[float, int]:
    """The seconds until it says that it is ready, and its bytes while idle."""
    with _service(bytecode, folder) as (url, pid, begin):
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
            while http.get("/readyz").status_code != 200:
                time.sleep(0.05)
            if query:
                found = http.get(f"/v1/spaces/{SPACE}/neighbors?model=first").raise_for_status()
                assert found.json()["items"][0]["model"] == "second"
        seconds = time.perf_counter() - begin
        time.sleep(idle)
        return seconds, sum(map(_proportional, _family(pid)))


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [pid, *(x for child in children.read_text().split() for x in _family(int(child)))]
    except OSError:
        return [pid]


def _proportional(pid: int) -> int:
    """Resident bytes, of shared pages this process's part; 0 without Linux's /proc."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _fill(bytecode: Path | None, folder: Path, models: int) -> None:
    """Two equal models by the API, then many signatures straight into the database."""
    rng = np.random.default_rng(1)
    signature = Support(np.sort(rng.choice(M, K, replace=False)), M).signature()
    with _service(bytecode, folder) as (url, _, _), Client(url) as client:
        client.ensure_space(SPACE, num_parameters=M)
        for name in ("first", "second"):
            client.put_signature(SPACE, name, signature)
    with closing(sqlite3.connect(folder / "m.db")) as database:
        for statement in (_COPY_MODELS, _COPY_SIGNATURES, _COUNT):
            database.execute(statement.format(n=models))
        database.commit()
