"""Measure durable writes beside what the disk allows: single PUTs, and a bulk upload.

The disk's limit is measured in the same rounds: the same bytes into as many files, each synced with
its folder, by as many threads as there are clients; and for the upload, 256 files of a folder
synced together. Server, client and limit share the cores and the disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from app.infra.storage.file_blobs import FileBlobs
from benchmarks.harness import Spread
from benchmarks.report import Findings, Row, Table, range_of
from benchmarks.service.crowd import M, endless_supports
from benchmarks.service.http import SUPPORT, service
from modelkin import Client, Support

LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy", "httpx", "numba")

PROCESSES = 2
CLIENTS = 8
GROUP = 256
"""Supports whose files the service syncs together."""
SPACE = "writes"
ROUNDS, PUTS, UPLOADED = 5, 400, 4_000
QUICK_ROUNDS, QUICK_PUTS, QUICK_UPLOADED = 1, 4, 12


def run(quick: bool) -> Findings:
    """Write, and let the disk write alone, in interleaved rounds."""
    rounds, puts, uploaded = (
        (QUICK_ROUNDS, QUICK_PUTS, QUICK_UPLOADED) if quick else (ROUNDS, PUTS, UPLOADED)
    )
    processes = 1 if quick else PROCESSES
    models = [support for _, support in islice(endless_supports(), uploaded)]
    names = (f"m{number}" for number in count())
    rates: dict[str, list[float]] = {}
    with service(f"--processes={processes}") as (http, _), TemporaryDirectory() as folder:
        blobs = FileBlobs(Path(folder), "disk")
        blobs.prepare()
        with Client(str(http.base_url), timeout=120) as client:
            client.ensure_space(SPACE, num_parameters=M)
            bodies = [model.to_bytes() for model in models[:puts]]
            contenders: dict[str, Callable[[], float]] = {
                "put": lambda: _put(http, bodies, names),
                "put limit": lambda: _synced(blobs, bodies),
                "upload": lambda: _upload(client, models, names),
                "upload limit": lambda: _synced_together(blobs, models),
            }
            for number in range(-1, rounds):  # the first round warms up
                for name, measure in contenders.items():
                    rate = measure()
                    if number >= 0 or quick:
                        rates.setdefault(name, []).append(rate)
    k = models[0].k
    return _findings(f"K = {k:,}, M = {M:,}, {processes} processes", rates)


def _put(http: httpx.Client, bodies: list[bytes], names: Iterator[str]) -> float:
    urls = [f"/v1/spaces/{SPACE}/supports/{next(names)}" for _ in bodies]

    def put(url: str, body: bytes) -> None:
        http.put(url, content=body, headers=SUPPORT).raise_for_status()

    begin = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(put, urls, bodies))
    return len(bodies) / (time.perf_counter() - begin)


def _synced(blobs: FileBlobs, bodies: list[bytes]) -> float:
    begin = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as writers:
        list(writers.map(lambda body: blobs.put("1", body), bodies))
    return len(bodies) / (time.perf_counter() - begin)


def _upload(client: Client, models: list[Support], names: Iterator[str]) -> float:
    begin = time.perf_counter()
    summary = client.put_many(SPACE, ((next(names), model) for model in models))
    if summary.created != len(models):
        raise RuntimeError(f"{summary} are not {len(models)} models")
    return len(models) / (time.perf_counter() - begin)


def _synced_together(blobs: FileBlobs, models: list[Support]) -> float:
    bodies = [model.to_bytes() for model in models]
    begin = time.perf_counter()
    for at in range(0, len(bodies), GROUP):
        blobs.put_many("1", bodies[at : at + GROUP])
    return len(bodies) / (time.perf_counter() - begin)


def _findings(what: str, rates: dict[str, list[float]]) -> Findings:
    rows = []
    for name, figure, limit, least in (
        ("put", f"PUT, {CLIENTS} clients", "files, each synced with its folder", None),
        ("upload", "put_many", f"files, {GROUP} synced together", 2_000),
    ):
        ours, disk = rates[name], rates[f"{name} limit"]
        ratio = Spread.of([a / b for a, b in zip(ours, disk, strict=True)])
        rate = Spread.of(ours).median
        rows.append(
            Row(
                f"{what}: {figure}, supports a second",
                f"{rate:,.0f}",
                f"{limit}: {Spread.of(disk).median:,.0f}",
                range_of(ratio),
                "" if least is None else f"≥ {least:,} a second",
                None if least is None else rate >= least,
            )
        )
    spreads = {name: Spread.of(each) for name, each in rates.items()}
    facts = [
        [name, f"{each.median:,.0f}", f"{each.least:,.0f} – {each.most:,.0f}"]
        for name, each in spreads.items()
    ]
    return Findings(
        rows,
        [Table(f"Durable writes, {os.cpu_count()} cores", ["", "a second", "least – most"], facts)],
    )
