"""Measure audits: all verdicts of 2,000 models, and pages of those of 100,000, on both databases.

The verdicts are planted, as jobs keep them while models arrive: they are read here, and not made.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx

from app.infra.db.tables.base import table_of
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.findings import FindingRow
from benchmarks.report import Findings, Row, duration
from benchmarks.service.planted_findings import (
    finding_row,
    made_space,
    model_row,
    settle,
    write_rows,
)
from modelkin import Client
from tests.support.app.harness import open_app
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.servers.postgres import postgres_server
from tests.support.servers.server_process import Server

LIBRARIES = ("fastapi", "sqlalchemy", "psycopg")

WHOLE, QUICK_WHOLE = 2_000, 80
PLANTED, QUICK_PLANTED = 100_000, 500
ROUNDS, QUICK_ROUNDS = 9, 1
WHOLE_S, PAGE_S = 2.0, 0.3
_LIMIT: Final = 100
_DEEP: Final = 20
"""Pages before the one that counts as deep."""


def run(quick: bool) -> Findings:
    """Plant on each database, and read what is kept."""
    whole, paged = (QUICK_WHOLE, QUICK_PLANTED) if quick else (WHOLE, PLANTED)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    rows = list[Row]()
    with ExitStack() as stack:
        backends: list[Backend] = [SQLITE]
        if not quick:
            backends.append(PostgresBackend(stack.enter_context(postgres_server())))
        for backend in backends:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="modelkin-audits-")))
            _plant(folder, backend, {"whole": whole, "paged": paged})
            settle(backend, folder)
            server = Server(folder, backend=backend).start()
            try:
                rows += _whole(server.url, backend.name, whole, rounds)
                rows += _paged(server.url, backend.name, paged, rounds)
            finally:
                server.stop()
    return Findings(rows)


def _plant(folder: Path, backend: Backend, models: Mapping[str, int]) -> None:
    now, first = datetime.now(UTC), 1
    with open_app(folder, backend) as app:
        for name, count in models.items():
            space = made_space(app, name)
            rows = [
                model_row(number, space, f"org/model-{number:06d}", f"org/model-{first:06d}", now)
                for number in range(first, first + count)
            ]
            write_rows(app, ModelRow, rows)
            write_rows(app, FindingRow, (finding_row(each, now) for each in rows))
            first += count
            with app.database.writing() as session:
                here = table_of(SpaceRow).c.id == space
                session.execute(table_of(SpaceRow).update().where(here).values(signatures=count))


def _whole(url: str, name: str, models: int, rounds: int) -> list[Row]:
    """The audit of all models, as a program reads it."""
    with Client(url) as client:

        def read() -> None:
            found = client.lineages("whole").read()
            if len(found) != models:
                raise RuntimeError(f"{len(found)} findings of {models} models")

        return [_row(f"all verdicts of {models:,} models, {name}", read, rounds, WHOLE_S)]


def _paged(url: str, name: str, models: int, rounds: int) -> list[Row]:
    """Single pages of many findings, with their totals."""
    path, most = "/v1/spaces/paged/lineages", {"limit": _LIMIT}
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as http:

        def get(of: str, **query: Any) -> Callable[[], httpx.Response]:
            return lambda: http.get(of, params=query).raise_for_status()

        deep: dict[str, Any] = {"verdict": "consistent", "limit": _LIMIT}
        for _ in range(_DEEP):
            if cursor := get(path, **deep)().json()["next_cursor"]:
                deep["cursor"] = cursor
        asked = {
            "the first page": get(path, **most),
            "a page further on": get(path, **deep),
            "`verdict=mismatch`": get(path, verdict="mismatch", **most),
            "totals": get(path, limit=1),
            "the page of the explorer": get("/spaces/paged/lineages"),
        }
        return [
            _row(f"{what} of {models:,} models, {name}", read, rounds, PAGE_S)
            for what, read in asked.items()
        ]


def _row(figure: str, read: Callable[[], object], rounds: int, target: float) -> Row:
    seconds = list[float]()
    for _ in range(rounds):
        began = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - began)
    median = statistics.median(seconds)
    ours = f"{duration(median)}, at most {duration(max(seconds))}"
    return Row(figure, ours, "", "", f"≤ {duration(target)}", median <= target)
