"""Measure puts of fingerprints beside puts of signatures, and of supports, which are files.

All three are sent in turns to one service, one at a time and by several clients at once. So what
the machine does beside falls on each alike, and their ratio is the figure. In the same rounds, what
a fingerprint has more of whoever stores it is measured alone: rows of as many bytes, committed by
SQLite, and the time of the processor that decodes and checks it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np

from app.fingerprints.finding_keys import coarse_end
from benchmarks.harness import Spread
from benchmarks.report import Findings, Row, Table
from benchmarks.service.http import service
from modelkin import Support, wire
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.wire import FINGERPRINT, SIGNATURE, SUPPORT
from tests.support.models.made_fingerprints import made_fingerprint
from tests.support.servers.postgres import postgres_server

LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy", "httpx", "numba", "psycopg")

M = 1_000_000
K = 5_000
TENSORS, KEYS_A_TENSOR = 74, 55
"""As many tensors and keys as e5-small, of which a fingerprint keeps some 4,000."""
SPACE = "puts"
CLIENTS = 8
SHARED = 4
"""Puts of these clients that share a commit, on the average."""
ROUNDS, PUTS = 8, 100
QUICK_ROUNDS, QUICK_PUTS = 1, 4
LIMIT = 1.2

Body = tuple[str, str, bytes]
"""The path before a model's name, the media type and the bytes of a put."""


Seconds = dict[tuple[str, int], list[float]]


def run(quick: bool) -> Findings:
    """Put each kind in turns, on SQLite and on Postgres."""
    rounds, puts = (QUICK_ROUNDS, QUICK_PUTS) if quick else (ROUNDS, PUTS)
    bodies = {kind: [make(seed) for seed in range(puts)] for kind, make in _KINDS.items()}
    with service(_NO_WORKER) as (http, _), _rows_alone() as put_alone:
        sqlite = _rounds(http, bodies, rounds)
        alone = _rounds_alone(bodies, put_alone, rounds)
    with postgres_server() as server:
        url = f"--database-url={server.create('puts')}"
        with service(_NO_WORKER, url) as (http, _):
            postgres = _rounds(http, bodies, rounds)
    sizes = {kind: len(some[0][2]) for kind, some in bodies.items()}
    what = f"{KEYS_A_TENSOR * TENSORS:,} keys, {sizes['fingerprint']:,} bytes"
    beside = f"a signature of {sizes['signature']:,} bytes"
    rows = [
        _row(seconds, clients, f"{what}, {clients} at a time on {database}, against {beside}")
        for database, seconds in (("SQLite", sqlite), ("Postgres", postgres))
        for clients in (1, CLIENTS)
    ]
    facts = [
        [f"a {kind}, {clients} at a time", _shown(some), _shown(postgres[kind, clients])]
        for (kind, clients), some in sqlite.items()
    ]
    parts = [
        *((f"rows of as many bytes, {n} a commit, SQLite alone", n) for n in (1, SHARED)),
        ("decoded and checked, of the processor", 0),
    ]
    beside_it = [[name, *(_shown(alone[kind, part]) for kind in _DECODERS)] for name, part in parts]
    return Findings(
        rows,
        [
            Table("Puts, median (least – most)", ["of", "on SQLite", "on Postgres"], facts),
            Table("What either takes alone", ["", *(f"a {kind}" for kind in _DECODERS)], beside_it),
        ],
    )


def _rounds(http: httpx.Client, bodies: dict[str, list[Body]], rounds: int) -> Seconds:
    """The seconds of a put by kind and clients, in each round; the first round warms up."""
    names, seconds = (f"m{number}" for number in count()), Seconds()
    http.post("/v1/spaces", json={"name": SPACE, "num_parameters": M}).raise_for_status()
    for number in range(-1, rounds):
        for clients in (1, CLIENTS):
            for kind, some in bodies.items():
                each = _put(http, some, names, clients)
                if number >= 0:
                    seconds.setdefault((kind, clients), []).append(each)
    return seconds


def _rounds_alone(
    bodies: dict[str, list[Body]], put: Callable[[list[int], int], float], rounds: int
) -> Seconds:
    """The seconds of rows by kind and rows a commit, and of decoding one, which has 0."""
    seconds = Seconds()
    for _ in range(rounds):
        for kind, decode in _DECODERS.items():
            payloads = [data for _, _, data in bodies[kind]]
            sizes = [len(data) + _beside(data, kind) for data in payloads]
            for together in (1, SHARED):
                seconds.setdefault((kind, together), []).append(put(sizes, together))
            seconds.setdefault((kind, 0), []).append(_decoding(payloads, decode))
    return seconds


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


@contextmanager
def _rows_alone() -> Iterator[Callable[[list[int], int], float]]:
    """Commit rows of some sizes by SQLite alone, so many together."""
    with TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder, "alone.db"))) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, data BLOB)")

        def put(sizes: list[int], together: int) -> float:
            data = [(os.urandom(size),) for size in sizes]
            begin = time.perf_counter()
            for at in range(0, len(data), together):
                with db:
                    db.executemany("INSERT INTO rows (data) VALUES (?)", data[at : at + together])
            return (time.perf_counter() - begin) / len(data)

        yield put


def _beside(data: bytes, kind: str) -> int:
    """The bytes of the keys that a fingerprint is found by, which are stored beside it."""
    if kind == "signature":
        return 0
    return coarse_end(wire.decode_fingerprint(data))[1].nbytes


def _decoding(payloads: list[bytes], decode: Callable[[bytes], object]) -> float:
    """The seconds of the processor to decode and check one."""
    begin = time.thread_time()
    for data in payloads:
        decode(data)
    return (time.thread_time() - begin) / len(payloads)


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


_DECODERS: dict[str, Callable[[bytes], object]] = {
    "signature": wire.decode_signature,
    "fingerprint": wire.decode_fingerprint,
}

_NO_WORKER = "--embedded-worker=off"


def _row(seconds: Seconds, clients: int, what: str) -> Row:
    found, support = (_ratio(seconds, kind, clients) for kind in ("fingerprint", "support"))
    return Row(
        f"put of a fingerprint, {what}",
        f"{found:.2f}×",
        f"a support, which is a file: {support:.2f}×",
        "",
        f"≤ {LIMIT}×",
        found <= LIMIT,
    )


def _ratio(seconds: Seconds, kind: str, clients: int) -> float:
    """How much longer a put takes than that of a signature, in the median round."""
    pairs = zip(seconds[kind, clients], seconds["signature", clients], strict=True)
    return Spread.of([mine / theirs for mine, theirs in pairs]).median


def _shown(seconds: list[float]) -> str:
    spread = Spread.of([1e3 * each for each in seconds])
    return f"{spread.median:.2f} ms ({spread.least:.2f} – {spread.most:.2f})"
