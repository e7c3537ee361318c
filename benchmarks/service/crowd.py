"""Measure a space of up to 100,000 models over HTTP, with two server processes and their client.

Every model has a support of its own, in a space small enough to fill in minutes. Kin have a known
similarity, so recall is counted at the client's end too. The client is a light one, in a process
of its own on the same cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import httpx
import numpy as np
import numpy.typing as npt

from benchmarks.light_client import Load, Loader, loader
from benchmarks.report import Findings, Row, Table, duration
from benchmarks.retrieval.planted_models import BACKGROUNDS, DENSITY, NEAR, Members
from benchmarks.service.http import service
from modelkin import Client, Support

LIBRARIES = ("fastapi", "uvicorn", "uvloop", "h11", "sqlalchemy", "numba")

PROCESSES = 2
CLIENTS = 8
M = 100_032
"""A multiple of 64, and more coordinates than a sketch has."""
SIZES, QUICK_SIZES = (20_000, 100_000), (60, 120)
P50 = {20_000: 5e-3, 100_000: 6e-3}
"""Seconds of a query, as the target."""
MIN_RATE = 300
ROUNDS, SECONDS = 5, 6.0
ASKED = 500
"""Different queries, for recall and in turn for time."""
SPACE = "crowd"
FAMILY = NEAR + 1


@dataclass(frozen=True, slots=True)
class _Crowd:
    """The figures among n models: supports stored a second, loads by round, and recall."""

    n: int
    filling: float
    alone: list[Load]
    together: list[Load]
    recall: float


def run(quick: bool) -> Findings:
    """Fill through the SDK, query one by one, then on several connections; then fill further."""
    processes = 1 if quick else PROCESSES
    crowds, models = [], endless_supports()
    with service(f"--processes={processes}") as (http, _), loader() as client:
        url, filled = str(http.base_url), 0
        for n in QUICK_SIZES if quick else SIZES:
            filling, filled = _fill(url, islice(models, n - filled), n - filled), n
            crowds.append(_asked(http, client, n, filling, quick))
    return _findings(crowds, processes)


def _fill(url: str, models: Iterator[tuple[str, Support]], count: int) -> float:
    """Models stored per second, the client's work included."""
    begin = time.perf_counter()
    with Client(url, idle_timeout=120) as client:
        client.ensure_space(SPACE, num_parameters=M)
        summary = client.put_many(SPACE, models)
    if summary.created != count:
        raise RuntimeError(f"{summary} are not {count} models")
    return count / (time.perf_counter() - begin)


def endless_supports() -> Iterator[tuple[str, Support]]:
    """Families of a head and its kin, one after the other, without an end."""
    members, family = Members(BACKGROUNDS[0], M // 64), 0
    while True:
        head = members.unrelated(1)
        for place, words in enumerate(np.concatenate([head, members.kin(head[0])])):
            yield f"{family}/{place}", _support(words)
        family += 1


def _support(words: npt.NDArray[np.uint64]) -> Support:
    flags = np.unpackbits(words.view(np.uint8), bitorder="little")
    return Support.from_indices(np.flatnonzero(flags), M)


def _asked(http: httpx.Client, client: Loader, n: int, filling: float, quick: bool) -> _Crowd:
    heads = np.random.default_rng(2).permutation(n // FAMILY)[:ASKED].tolist()
    recall = statistics.mean(_recall(http, head) for head in heads)
    urls = [str(http.base_url.join(_path(head))) for head in heads]
    alone, together = list[Load](), list[Load]()
    seconds = 0.05 if quick else SECONDS
    client.get(*urls, seconds=seconds)  # each process loads its index
    for _ in range(1 if quick else ROUNDS):
        alone.append(client.get(*urls, seconds=seconds / 2, connections=1))
        together.append(client.get(*urls, seconds=seconds, connections=CLIENTS))
    return _Crowd(n, filling, alone, together, recall)


def _path(head: int) -> str:
    return f"/v1/spaces/{SPACE}/neighbors?k={NEAR}&method=scan&model={head}/0"


def _recall(http: httpx.Client, head: int) -> float:
    """The share of the kin of a head that are found."""
    answer = http.get(_path(head)).raise_for_status().json()
    kin = {f"{head}/{place}" for place in range(1, FAMILY)}
    return len(kin & {item["model"] for item in answer["items"]}) / NEAR


def _findings(crowds: list[_Crowd], processes: int) -> Findings:
    rows, facts = [], []
    for each in crowds:
        what = f"n = {each.n:,}, M = {M:,}, K = {DENSITY:.1%}, {processes} processes"
        p50, rate = _median(each.alone, "p50"), _median(each.together, "rate")
        most = P50.get(each.n, 1.0)
        rows += [
            Row(
                f"{what}: p50 of a query",
                duration(p50),
                "",
                "",
                f"≤ {1e3 * most:g} ms",
                p50 <= most,
            ),
            Row(
                f"{what}: queries a second, {CLIENTS} connections, the client on the same cores",
                f"{rate:.0f}",
                "",
                "",
                f"≥ {MIN_RATE}",
                rate >= MIN_RATE,
            ),
            Row(f"{what}: recall@10", f"{each.recall:.3f}", "", "", "≥ 0.99", each.recall >= 0.99),
        ]
        rounds = ", ".join(f"{load.rate:.0f}" for load in each.together)
        facts += [
            [
                f"n = {each.n:,}: supports stored in a second, through put_many",
                f"{each.filling:.0f}",
            ],
            [f"n = {each.n:,}: queries a second, round by round", rounds],
        ]
    return Findings(rows, [Table("Many models", ["", ""], facts)])


def _median(loads: list[Load], figure: str) -> float:
    return float(statistics.median(getattr(load, figure) for load in loads))
