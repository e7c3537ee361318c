"""Measure a space of 100,000 models over HTTP, with two server processes and their clients.

Every model has a support of its own, in a space small enough to fill in minutes. Kin have a known
similarity, so recall is counted at the client's end too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import numpy as np
import numpy.typing as npt

from benchmarks.report import Findings, Row, Table
from benchmarks.retrieval.planted_models import BACKGROUNDS, DENSITY, NEAR, Members
from benchmarks.subjects.http import service
from modelkin import Client, Support

LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy", "httpx", "numba")

PROCESSES = 2
CLIENTS = 8
M = 100_032
"""A multiple of 64, and more coordinates than a sketch has."""
MODELS, QUICK_MODELS = 100_000, 120
QUERIES, QUICK_QUERIES = 2_000, 8
SPACE = "crowd"
FAMILY = NEAR + 1


def run(quick: bool) -> Findings:
    """Fill through the SDK, query one by one, then from several clients at once."""
    n, queries = (QUICK_MODELS, QUICK_QUERIES) if quick else (MODELS, QUERIES)
    processes = 1 if quick else PROCESSES
    with service(f"--processes={processes}") as (http, _):
        filling = _fill(str(http.base_url), n)
        heads = np.random.default_rng(2).permutation(n // FAMILY)[:queries].tolist()
        for head in heads[:CLIENTS]:  # each process loads its index
            _found(http, head)
        latencies, recalls = _alone(http, heads[: max(1, len(heads) // 4)])
        rate = _together(http, heads)
    what = f"n = {n:,}, M = {M:,}, K = {DENSITY:.1%}, {processes} processes"
    return _findings(what, filling, latencies, recalls, rate)


def _fill(url: str, n: int) -> float:
    """Models stored per second, the client's work included."""
    begin = time.perf_counter()
    with Client(url, timeout=120) as client:
        client.ensure_space(SPACE, num_parameters=M)
        summary = client.put_many(SPACE, _models(n))
    if summary.created != n:
        raise RuntimeError(f"{summary} are not {n} models")
    return n / (time.perf_counter() - begin)


def _models(n: int) -> Iterator[tuple[str, Support]]:
    """Families of a head and its kin, one after the other."""
    members = Members(BACKGROUNDS[0], M // 64)
    for family in range(-(-n // FAMILY)):
        head = members.unrelated(1)
        rows = np.concatenate([head, members.kin(head[0])])[: n - family * FAMILY]
        for place, words in enumerate(rows):
            yield f"{family}/{place}", _support(words)


def _support(words: npt.NDArray[np.uint64]) -> Support:
    flags = np.unpackbits(words.view(np.uint8), bitorder="little")
    return Support.from_indices(np.flatnonzero(flags), M)


def _alone(http: httpx.Client, heads: list[int]) -> tuple[list[float], list[float]]:
    """Seconds of every query, and the share of kin found."""
    seconds, recalls = [], []
    for head in heads:
        begin = time.perf_counter()
        names = _found(http, head)
        seconds.append(time.perf_counter() - begin)
        kin = {f"{head}/{place}" for place in range(1, FAMILY)}
        recalls.append(len(kin & names) / NEAR)
    return seconds, recalls


def _together(http: httpx.Client, heads: list[int]) -> float:
    """Queries per second of several concurrent clients."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(partial(_found, http), heads))
    return len(heads) / (time.perf_counter() - begin)


def _found(http: httpx.Client, head: int) -> set[str]:
    address = f"/v1/spaces/{SPACE}/neighbors?k={NEAR}&method=scan&model={head}/0"
    answer = http.get(address).raise_for_status().json()
    return {item["model"] for item in answer["items"]}


def _findings(
    what: str, filling: float, latencies: list[float], recalls: list[float], rate: float
) -> Findings:
    p50, p95 = (1e3 * float(np.quantile(latencies, share)) for share in (0.5, 0.95))
    recall = statistics.mean(recalls)
    rows = [
        Row(f"{what}: p50 of a query", f"{p50:.1f} ms", "", "", "≤ 12 ms", p50 <= 12),
        Row(
            f"{what}: queries a second, {CLIENTS} clients on the same cores",
            f"{rate:.0f}",
            "",
            "",
            "≥ 150",
            rate >= 150,
        ),
        Row(f"{what}: recall@10", f"{recall:.3f}", "", "", "≥ .99", recall >= 0.99),
    ]
    facts = [
        ["a query, one at a time: p50 (p95)", f"{p50:.1f} ms ({p95:.1f})"],
        ["queries a second", f"{rate:.0f}"],
        ["supports stored in a second, through put_many", f"{filling:.0f}"],
    ]
    return Findings(rows, [Table(f"Many models, {what}", ["", ""], facts)])
