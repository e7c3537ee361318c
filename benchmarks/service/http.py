"""Measure one server process over HTTP on loopback: ingest and neighbours, from the client's side.

Every request is timed from the call to the last byte of the answer. The physical limit of ingest
is a durable write of the same bytes, file by file; that of neighbours is a request to ``/livez``.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np

from benchmarks.report import Findings, Row, Table
from modelkin import Support

LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy", "httpx", "numba")

ROOT = Path(__file__).parents[2]
SUPPORT = {"Content-Type": "application/vnd.modelkin.support"}
CLIENTS = 4
DISTINCT = 60
"""Different supports that are sent; further names send them again."""


def run(quick: bool) -> Findings:
    """Measure ingest of large models, then queries among many."""
    large = (50_000, 4) if quick else (11_000_000, 120)
    many = (20_000, 30) if quick else (1_000_000, 10_000)
    with service() as (http, process):
        rows, table = _ingest(http, *large, density=0.073)
        more, other = _neighbors(http, process, *many, density=0.08)
    return Findings([*rows, *more], [table, other])


@contextmanager
def service(
    *flags: str, **variables: str
) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """The service on a temporary embedded store, with one process unless flags say otherwise.

    Args:
        flags: of its command.
        variables: of its environment; empty ones are left out.
    """
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MODELKIN_")}
        environment |= {name: value for name, value in variables.items() if value}
        with log.open("wb") as file:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "app",
                    f"--database-url=sqlite:///{folder}/m.db",
                    "--port=0",
                    *flags,
                ],
                cwd=ROOT,
                env=environment,
                stderr=file,
            )
        try:
            limits = httpx.Limits(max_connections=2 * CLIENTS)
            url = listening_address(process, log)
            with httpx.Client(base_url=url, timeout=120, limits=limits, trust_env=False) as http:
                yield http, process
        finally:
            process.terminate()
            process.wait(60)


def listening_address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where a server listens that has been started, as its log says."""
    while process.poll() is None:
        if found := re.search(r"running on (http://\S+)", log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(log.read_text())


def _ingest(http: httpx.Client, m: int, n: int, *, density: float) -> tuple[list[Row], Table]:
    http.post("/v1/spaces", json={"name": "large", "num_parameters": m}).raise_for_status()
    bodies = [support.to_bytes() for support in kin(m, min(n, 12), density)]
    seconds, wall = _put(http, "large", bodies, n)
    limit = _write_durably(bodies, min(n, 24))
    what = f"M = {m:,}, K = {density:.1%}, {CLIENTS} clients at once"
    rate = n / wall
    rows = [
        Row(
            f"ingest, {what}: supports a second",
            f"{rate:.0f}",
            "target",
            "",
            "≥ 15",
            rate >= 15,
        )
    ]
    facts = [
        ["a PUT, until it is durable", _milliseconds(seconds)],
        ["the same bytes into a file, synced", _milliseconds(limit)],
        ["bytes of a body", f"{statistics.mean(map(len, bodies)):,.0f}"],
    ]
    return rows, Table(f"Ingest, {what}", ["", "median (p95)"], facts)


def _neighbors(
    http: httpx.Client, process: subprocess.Popen[bytes], m: int, n: int, *, density: float
) -> tuple[list[Row], Table]:
    http.post("/v1/spaces", json={"name": "many", "num_parameters": m}).raise_for_status()
    before = _memory(process)
    bodies = [support.to_bytes() for support in kin(m, min(n, DISTINCT), density)]
    puts, wall = _put(http, "many", bodies, n)
    asked = [f"m{i}" for i in range(0, n, max(1, n // 100))]
    base = "/v1/spaces/many/neighbors?k=10&model="
    _get(http, base + asked[0])  # loads the index
    seconds = [_time(partial(_get, http, base + name)) for name in asked]
    alive = [_time(partial(_get, http, "/livez")) for _ in asked]
    answer = http.get(base + asked[0]).json()
    median = statistics.median(seconds) * 1000
    what = f"n = {n:,}, M = {m:,}, K = {density:.0%}"
    rows = [
        Row(
            f"neighbours, {what}, k = 10, method {answer['method']}: p50",
            f"{median:.1f} ms",
            f"/livez: {statistics.median(alive) * 1000:.1f} ms",
            "",
            "≤ 15 ms",
            median <= 15,
        )
    ]
    facts = [
        ["a query, exact refinement included", _milliseconds(seconds)],
        ["a request that does nothing", _milliseconds(alive)],
        ["a PUT while filling the space", f"{_milliseconds(puts)}; {n / wall:.0f} a second"],
        ["memory of the process before", f"{before / 2**20:.0f} MiB"],
        ["and with the space in its index", f"{_memory(process) / 2**20:.0f} MiB"],
    ]
    return rows, Table(f"Neighbours, {what}", ["", "median (p95)"], facts)


def kin(m: int, n: int, density: float) -> list[Support]:
    """``n`` supports of eight families, at all distances from their families' heads."""
    rng = np.random.default_rng(1)
    heads = [rng.random(m, dtype=np.float32) < density for _ in range(8)]
    supports = []
    for number in range(n):
        head, share = heads[number % 8], rng.uniform(0.1, 0.9)
        drawn = rng.random(m, dtype=np.float32)
        kept = np.where(head, drawn < share, drawn < density * (1 - share))
        supports.append(Support.from_indices(np.flatnonzero(kept), m))
    return supports


def _put(http: httpx.Client, space: str, bodies: list[bytes], n: int) -> tuple[list[float], float]:
    def put(number: int) -> float:
        url = f"/v1/spaces/{space}/supports/m{number}"
        body = bodies[number % len(bodies)]
        return _time(lambda: http.put(url, content=body, headers=SUPPORT).raise_for_status())

    begin = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        seconds = list(clients.map(put, range(n)))
    return seconds, time.perf_counter() - begin


def _write_durably(bodies: list[bytes], n: int) -> list[float]:
    with TemporaryDirectory() as folder:
        names = count()

        def write(body: bytes) -> None:
            with open(Path(folder, str(next(names))), "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())

        return [_time(partial(write, body)) for body in (bodies * n)[:n]]


def _get(http: httpx.Client, url: str) -> None:
    http.get(url).raise_for_status()


def _time(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _milliseconds(seconds: list[float]) -> str:
    p95 = float(np.quantile(seconds, 0.95))
    return f"{statistics.median(seconds) * 1000:.1f} ms ({p95 * 1000:.1f})"


def _memory(process: subprocess.Popen[bytes]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0
