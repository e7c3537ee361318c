"""Measure the explorer's first page with 100,000 models, on SQLite and on Postgres.

Models of many spaces and verdicts on them, fingerprints with families of Zipf sizes and their
anatomies, and what has failed are planted in the database. Chromium opens the pages, each time with
an empty cache.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from app.infra.db.tables.base import table_of
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.findings import FindingRow
from app.infra.db.tables.jobs import JobRow
from app.infra.db.tables.weights import ModelWeightsRow
from benchmarks.report import Findings, Row, Table
from benchmarks.service.explorer import Visits
from benchmarks.service.planted_findings import (
    finding_row,
    made_space,
    model_row,
    settle,
    write_rows,
)
from benchmarks.service.planted_hub import PlantedHub
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.servers.browser import BROWSER, opened_browser
from tests.support.servers.postgres import postgres_server
from tests.support.servers.server_process import Server

LIBRARIES = ("sqlalchemy", "playwright")

MODELS, QUICK_MODELS = 100_000, 300
ROUNDS, QUICK_ROUNDS = 5, 1
_PER_SPACE: Final = 500
_NEW: Final = 0.01
"""The share of models that are new since yesterday."""
_COPIES: Final = 0.01
"""The share of models that have the weights of the one before."""
_BASES: Final = 10
"""Bases that the models of a space declare."""
_FAILED: Final = 0.02
"""Failed jobs, to a model."""
_PAGES: Final = {
    "inbox": "/",
    "contradicted declarations": "/findings",
    "new models": "/new",
    "spaces": "/spaces",
}


def run(quick: bool) -> Findings:
    """Fill a store on each database, and visit the first page and what it leads to."""
    if BROWSER is None:
        return Findings([], [Table("Not measured", ["what is missing"], [["Chromium"]])])
    models, rounds = (QUICK_MODELS, QUICK_ROUNDS) if quick else (MODELS, ROUNDS)
    rows = list[Row]()
    with ExitStack() as stack:
        browser = stack.enter_context(opened_browser())
        backends: list[Backend] = [SQLITE]
        if not quick:
            backends.append(PostgresBackend(stack.enter_context(postgres_server())))
        for backend in backends:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="modelkin-inbox-")))
            with open_app(folder, backend) as app:
                plant(app, models)
            settle(backend, folder)
            server = Server(folder, backend=backend).start()
            try:
                visits = Visits(browser, server.url, rounds)
                for what, path in _PAGES.items():
                    rows.append(visits.painted(f"{what}, {backend.name}", path))
            finally:
                server.stop()
    return Findings(rows)


def plant(app: AppHarness, models: int) -> None:
    """Write the rows of so many models, and as many fingerprints."""
    PlantedHub(models, max(1, models // 100), has_kin=False).plant(app.database, app.tenant)
    spaces = [made_space(app, f"space-{number:04d}") for number in range(-(-models // _PER_SPACE))]
    draw, now = np.random.default_rng(0), datetime.now(UTC)
    rows = [_model(number, spaces, now) for number in range(1, models + 1)]
    write_rows(app, ModelRow, rows)
    write_rows(app, FindingRow, (finding_row(each, each["created_at"]) for each in rows))
    write_rows(
        app, ModelWeightsRow, (_weights(draw, number, now) for number in range(1, models + 1))
    )
    write_rows(app, JobRow, (_job(number, now) for number in range(int(models * _FAILED))))
    with app.database.writing() as session:
        session.execute(table_of(SpaceRow).update().values(signatures=_PER_SPACE))


def _model(number: int, spaces: list[int], now: datetime) -> dict[str, Any]:
    is_new = number % round(1 / _NEW) == 0
    at = now - (timedelta(minutes=number % 600) if is_new else timedelta(days=30))
    space, place = divmod(number - 1, _PER_SPACE)
    base = None if place < _BASES else f"org-{space}/model-{space * _PER_SPACE + place % _BASES}"
    return model_row(number, spaces[space], f"org-{space}/model-{number - 1}", base, at)


def _weights(draw: np.random.Generator, number: int, now: datetime) -> dict[str, Any]:
    own = number - 1 if number % round(1 / _COPIES) == 0 else number
    return {
        "model_id": number,
        "revision": 1,
        "digest": np.random.default_rng(own).bytes(32),
        "tensors": draw.bytes(200),
        "files": 1,
        "size": 1,
        "dtypes": {},
        "stated_by": "hub",
        "stated_at": now,
    }


def _job(number: int, now: datetime) -> dict[str, Any]:
    return {
        "id": f"01a22d7e-0000-7000-8000-{number:012d}",
        "kind": "ingest",
        "state": "failed",
        "parameters": {},
        "error": {"code": "unavailable", "detail": "the hub did not answer"},
        "dispatch_no": 1,
        "dispatched": False,
        "attempts": 1,
        "cancel_requested": False,
        "revision": 1,
        "created_at": now,
        "finished_at": now,
    }
