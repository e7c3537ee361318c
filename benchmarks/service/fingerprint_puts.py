"""Measure puts of fingerprints beside puts of signatures, and of supports, which are files.

All three are sent in turns to one service, one at a time and by several clients at once. So what
the machine does beside falls on each alike, and their ratio is the figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import httpx
import numpy as np

from benchmarks.harness import Spread
from benchmarks.report import Findings, Row, Table
from benchmarks.service.http import service
from modelkin import Support
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.wire import FINGERPRINT, SIGNATURE, SUPPORT
from tests.support.models.made_fingerprints import made_fingerprint

LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy", "httpx", "numba")

M = 1_000_000
K = 5_000
TENSORS, KEYS_A_TENSOR = 74, 55
"""As many tensors and keys as e5-small, of which a fingerprint keeps some 4,000."""
SPACE = "puts"
CLIENTS = 8
ROUNDS, PUTS = 10, 100
QUICK_ROUNDS, QUICK_PUTS = 1, 4
LIMIT = 1.2

Body = tuple[str, str, bytes]
"""The path before a model's name, the media type and the bytes of a put."""


def run(quick: bool) -> Findings:
    """Put each kind in turns; the first round warms up."""
    rounds, puts = (QUICK_ROUNDS, QUICK_PUTS) if quick else (ROUNDS, PUTS)
    bodies = {kind: [make(seed) for seed in range(puts)] for kind, make in _KINDS.items()}
    names = (f"m{number}" for number in count())
    seconds: dict[tuple[str, int], list[float]] = {}
    with service("--embedded-worker=off") as (http, _):
        http.post("/v1/spaces", json={"name": SPACE, "num_parameters": M}).raise_for_status()
        for number in range(-1, rounds):
            for clients in (1, CLIENTS):
                for kind, some in bodies.items():
                    each = _put(http, some, names, clients)
                    if number >= 0:
                        seconds.setdefault((kind, clients), []).append(each)
    size = len(bodies["fingerprint"][0][2])
    return _findings(seconds, f"{KEYS_A_TENSOR * TENSORS:,} keys, {size:,} bytes")


def _put(http: httpx.Client, bodies: list[Body], names: Iterator[str], clients: int) -> float:
    """The seconds of a put, in turns of all clients."""
    named = [(f"{path}/{next(names)}", kind, data) for path, kind, data in bodies]

    def put(one: Body) -> None:
        path, media_type, data = one
        http.put(path, content=data, headers={"Content-Type": media_type}).raise_for_status()

    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(put, named))
    return (time.perf_counter() - begin) / len(bodies)


def _fingerprint(seed: int) -> Body:
    made = made_fingerprint(seed, KEYS_A_TENSOR, tensors=TENSORS)
    draw = np.random.default_rng(seed)
    signed = tuple(replace(tensor, signature=draw.bytes(128)) for tensor in made.tensors)
    whole: Fingerprint = replace(made, tensors=signed)
    return "/v1/fingerprints", FINGERPRINT, whole.to_bytes()


def _signature(seed: int) -> Body:
    return f"/v1/spaces/{SPACE}/signatures", SIGNATURE, _support(seed).signature().to_bytes()


def _stored_support(seed: int) -> Body:
    return f"/v1/spaces/{SPACE}/supports", SUPPORT, _support(seed).to_bytes()


def _support(seed: int) -> Support:
    draw = np.random.default_rng(seed)
    return Support.from_indices(np.sort(draw.choice(M, K, replace=False)), M)


_KINDS: dict[str, Callable[[int], Body]] = {
    "signature": _signature,
    "fingerprint": _fingerprint,
    "support": _stored_support,
}


def _findings(seconds: dict[tuple[str, int], list[float]], what: str) -> Findings:
    rows, facts = [], []
    for clients in (1, CLIENTS):
        ratios = {
            kind: Spread.of(
                [
                    mine / theirs
                    for mine, theirs in zip(
                        seconds[kind, clients], seconds["signature", clients], strict=True
                    )
                ]
            )
            for kind in ("fingerprint", "support")
        }
        found = ratios["fingerprint"].median
        rows.append(
            Row(
                f"put of a fingerprint, {what}, {clients} at a time, against a signature",
                f"{found:.2f}×",
                f"a support, which is a file: {ratios['support'].median:.2f}×",
                "",
                f"≤ {LIMIT}×",
                found <= LIMIT,
            )
        )
        for kind in _KINDS:
            spread = Spread.of([1e3 * each for each in seconds[kind, clients]])
            shown = f"{spread.median:.2f} ms ({spread.least:.2f} – {spread.most:.2f})"
            facts.append([f"a {kind}, {clients} at a time", shown])
    return Findings(rows, [Table("Puts", ["", "median (least – most)"], facts)])
