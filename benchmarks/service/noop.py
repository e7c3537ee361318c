"""Measure small requests beside a request that does nothing, served by FastAPI the same way.

One process of the service, one of a bare application with the same event loop, HTTP parser and
settings, and a light client in a process of its own with eight connections. The rounds are
interleaved, and each ratio is one within a round.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from app.tenancy.auth.service import generate
from benchmarks.harness import Spread
from benchmarks.light_client import Load, Loader, loader
from benchmarks.report import Findings, Row, Table, at_most, duration, range_of
from benchmarks.service.http import ROOT, SUPPORT, kin, listening_address, service

LIBRARIES = ("fastapi", "uvicorn", "uvloop", "h11", "sqlalchemy", "pydantic")

CONNECTIONS = 8
M, MODELS = 10_000, 40
"""A space of few and small models: their comparison takes a fraction of a request."""
PLAIN, ASYNC = "a no-op, def", "a no-op, async def"
WRAPPED = "a no-op, def, with the service's middleware"
MODEL = "GET of a model"


@dataclass(frozen=True, slots=True)
class _Case:
    url: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def run(quick: bool) -> Findings:
    """Ask for each in turn, in several rounds."""
    rounds, seconds = (1, 0.05) if quick else (7, 2.0)
    with ExitStack() as stack:
        nothing = stack.enter_context(_no_op())
        wrapped = stack.enter_context(_no_op("--middleware"))
        cases = {
            PLAIN: _Case(f"{nothing}/plain"),
            WRAPPED: _Case(f"{wrapped}/plain"),
            ASYNC: _Case(f"{nothing}/async"),
        }
        for keyed in (False,) if quick else (False, True):
            cases |= _cases(stack, keyed=keyed)
        client = stack.enter_context(loader())
        measured = _measured(client, cases, rounds, seconds)
    return _findings(measured)


@contextmanager
def _no_op(*flags: str) -> Iterator[str]:
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as file:
            command = [sys.executable, "-m", "benchmarks.no_op", *flags]
            process = subprocess.Popen(command, cwd=ROOT, stderr=file)
        try:
            yield listening_address(process, log)
        finally:
            process.terminate()
            process.wait(60)


def _cases(stack: ExitStack, *, keyed: bool) -> dict[str, _Case]:
    """The requests to a service with a space of some models, without keys or with one."""
    key = generate()
    flags = ("--auth=required",) if keyed else ()
    http, _ = stack.enter_context(service(*flags, MODELKIN_INITIAL_KEY=key if keyed else ""))
    headers = {"Authorization": f"Bearer {key}"} if keyed else {}
    http.headers.update(headers)
    etag = _filled(http)
    base = str(http.base_url).rstrip("/")
    model = f"{base}/v1/spaces/s/models/m1"
    asked = {
        MODEL: _Case(model, 200, headers),
        "the same, unchanged since its ETag": _Case(model, 304, {**headers, "If-None-Match": etag}),
        f"neighbours among {MODELS}": _Case(
            f"{base}/v1/spaces/s/neighbors?k=10&model=m1", 200, headers
        ),
    }
    if keyed:
        return {f"with a key: {name}": case for name, case in asked.items()}
    return {"/livez": _Case(f"{base}/livez"), "/readyz": _Case(f"{base}/readyz"), **asked}


def _filled(http: httpx.Client) -> str:
    """The ETag of a model in a new space."""
    http.post("/v1/spaces", json={"name": "s", "num_parameters": M}).raise_for_status()
    for number, support in enumerate(kin(M, MODELS, 0.08)):
        address = f"/v1/spaces/s/supports/m{number}"
        put = http.put(address, content=support.to_bytes(), headers=SUPPORT).raise_for_status()
    etag = http.get("/v1/spaces/s/models/m1").raise_for_status().headers["etag"]
    assert put.headers["etag"] != etag
    return str(etag)


def _measured(
    client: Loader, cases: dict[str, _Case], rounds: int, seconds: float
) -> dict[str, list[Load]]:
    found: dict[str, list[Load]] = {name: [] for name in cases}
    for each in range(-1, rounds):  # the first round warms up
        for name, case in cases.items():
            load = client.get(
                case.url,
                seconds=seconds,
                connections=CONNECTIONS,
                status=case.status,
                headers=case.headers,
            )
            if each >= 0:
                found[name].append(load)
    return found


def _findings(measured: dict[str, list[Load]]) -> Findings:
    rates = {name: Spread.of([load.rate for load in loads]) for name, loads in measured.items()}
    p50s = {name: Spread.of([load.p50 for load in loads]) for name, loads in measured.items()}
    plain = measured[PLAIN]
    rate = Spread.of([a.rate / b.rate for a, b in zip(measured[MODEL], plain, strict=True)])
    cost = Spread.of([b.rate / a.rate for a, b in zip(measured[WRAPPED], plain, strict=True)])
    p50 = Spread.of([a.p50 / b.p50 for a, b in zip(measured[MODEL], plain, strict=True)])
    rows = [
        Row(
            f"{MODEL}: answers a second",
            f"{rates[MODEL].median:,.0f}",
            f"{PLAIN}: {rates[PLAIN].median:,.0f}",
            range_of(rate),
            "≥ 0.3×",
            rate.median >= 0.3,
        ),
        at_most(
            f"{MODEL}: p50",
            duration(p50s[MODEL].median),
            f"{PLAIN}: {duration(p50s[PLAIN].median)}",
            p50,
            3.4,
        ),
        at_most(
            f"{WRAPPED}: time of an answer",
            duration(1 / rates[WRAPPED].median),
            f"{PLAIN}: {duration(1 / rates[PLAIN].median)}",
            cost,
            1.05,
        ),
    ]
    facts = [
        [
            name,
            f"{rates[name].median:,.0f}",
            f"{rates[name].median / rates[PLAIN].median:.2f}×",
            duration(p50s[name].median),
            f"{p50s[name].median / p50s[PLAIN].median:.2f}×",
        ]
        for name in measured
    ]
    columns = ["", "answers a second", "of the no-op's", "p50", "of the no-op's"]
    title = f"Small requests, one process, {CONNECTIONS} connections, {os.cpu_count()} cores"
    return Findings(rows, [Table(title, columns, facts)])
