"""Measure what a bucket costs beside a folder: neighbours whose supports are here, and are not.

Two services hold the same models, one of them in an object store on loopback whose requests take
20 ms, and all transfers together 200 MB/s. Neither keeps supports open between queries, so each
query opens all that it compares. Cold ones come after the folder of fetched supports was deleted.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np

from benchmarks.harness import Spread
from benchmarks.object_server import object_server
from benchmarks.report import Findings, Row, Table, at_most, duration
from benchmarks.service.http import SUPPORT, service
from modelkin import Support

LIBRARIES = ("obstore", "fastapi", "uvicorn", "httpx", "numba")

LATENCY_S, BYTES_A_SECOND = 0.02, 200e6
COLD_LIMIT_S = 0.5
WARM_LIMIT = 1.05


def run(quick: bool) -> Findings:
    """Store the models in both, and query them in interleaved rounds."""
    m, k, models, rounds = (50_000, 5_000, 5, 2) if quick else (11_200_000, 800_000, 41, 15)
    random = np.random.default_rng(0)
    supports = [
        Support.from_indices(np.sort(random.choice(m, k, replace=False)), m) for _ in range(models)
    ]
    times: dict[str, list[float]] = {}
    with ExitStack() as stack:
        fetched = Path(stack.enter_context(TemporaryDirectory()), "fetched")
        variables = stack.enter_context(
            object_server(latency_s=LATENCY_S, bytes_a_second=BYTES_A_SECOND)
        )
        flags = ("--support-cache-entries=0",)
        files, _ = stack.enter_context(service(*flags))
        bucket, _ = stack.enter_context(
            service(
                *flags,
                "--blob-url=s3://bucket/models",
                f"--blob-cache-dir={fetched}",
                **variables,
            )
        )
        for name, http in (("put into files", files), ("put into a bucket", bucket)):
            times[name] = _fill(http, supports, m)
        for _ in range(rounds):
            shutil.rmtree(fetched)
            times.setdefault("cold", []).append(_query(bucket))
            for _ in range(3):
                times.setdefault("warm files", []).append(_query(files))
                times.setdefault("warm bucket", []).append(_query(bucket))
    return _findings(models - 1, m // 8, times)


def _fill(http: httpx.Client, supports: list[Support], m: int) -> list[float]:
    http.post("/v1/spaces", json={"name": "s", "num_parameters": m}).raise_for_status()
    took = []
    for number, support in enumerate(supports):
        body = support.to_bytes()
        began = time.perf_counter()
        stored = http.put(f"/v1/spaces/s/supports/m{number}", content=body, headers=SUPPORT)
        took.append(time.perf_counter() - began)
        stored.raise_for_status()
    return took


def _query(http: httpx.Client) -> float:
    began = time.perf_counter()
    answer = http.get("/v1/spaces/s/neighbors", params={"model": "m0", "method": "exact"})
    took = time.perf_counter() - began
    found = answer.raise_for_status().json()
    assert not found["degraded"]
    assert {"exact"} == {each["estimate"] for each in found["items"]}
    return took


def _findings(candidates: int, size: int, times: dict[str, list[float]]) -> Findings:
    what = f"{candidates} candidates of {size:,} bytes"
    line = LATENCY_S + candidates * size / BYTES_A_SECOND
    spreads = {name: Spread.of(each) for name, each in times.items()}
    warm, cold = spreads["warm bucket"], spreads["cold"]
    pairs = zip(times["warm bucket"], times["warm files"], strict=True)
    ratio = Spread.of([ours / theirs for ours, theirs in pairs])
    rows = [
        at_most(
            f"{what}: neighbours, all fetched before",
            duration(warm.median),
            f"a folder: {duration(spreads['warm files'].median)}",
            ratio,
            WARM_LIMIT,
        ),
        Row(
            f"{what}: neighbours, none fetched",
            duration(cold.median),
            f"the line alone: {duration(line)}",
            f"{duration(cold.least)} – {duration(cold.most)}",
            f"≤ {duration(COLD_LIMIT_S)}",
            cold.median <= COLD_LIMIT_S,
        ),
    ]
    facts = [
        [name, duration(each.median), f"{duration(each.least)} – {duration(each.most)}"]
        for name, each in spreads.items()
    ]
    return Findings(rows, [Table("A request", ["", "median", "least – most"], facts)])
