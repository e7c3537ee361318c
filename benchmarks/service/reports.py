"""Measure reports of large hubs: the time of the processor and the memory that each model takes.

Fingerprints, what they are to each other and their anatomies are planted in the database, since the
putting of so many takes hours. Families have Zipf sizes. So the figure that a model takes at two
sizes tells whether anything grows faster than the hub.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.jobs.records import JobRecord
from app.kinship.reports.service import ReportService
from benchmarks.harness import extra_memory
from benchmarks.report import Findings, Row, Table
from benchmarks.service.planted_hub import CHANGED_AT, PlantedHub
from tests.support.app.harness import AppHarness, open_app

LIBRARIES = ("sqlalchemy", "pydantic", "cyclonedx-python-lib")

SIZES, QUICK_SIZES = (10_000, 100_000), (60, 120)
NEW = 1_000
"""Models that have come since the last report, of a hub of the larger size."""
LIMIT = 1.3
"""How much more a model may take in a hub of ten times as many."""
FORMS = {
    "JSON": "application/json",
    "HTML": "text/html",
    "CSV": "text/csv",
    "CycloneDX": "application/vnd.cyclonedx+json",
}


@dataclass(frozen=True, slots=True)
class Taken:
    """What some work took.

    Attributes:
        cpu: seconds of the processor.
        memory: bytes by which the process grew meanwhile; None where that is unknown.
        result: what it returned.
    """

    cpu: float
    memory: int | None
    result: Any

    @property
    def text(self) -> str:
        """Both for a table."""
        memory = "" if self.memory is None else f", {self.memory / 1e6:,.0f} MB"
        return f"{self.cpu:,.1f} s{memory}"


def run(quick: bool) -> Findings:
    """Make reports of two hubs, and read each form of that of the larger one."""
    few, many = QUICK_SIZES if quick else SIZES
    made, cpu = [], dict[int, float]()
    for models in (few, many):
        with _planted(models) as (app, hub):
            whole = _taken(partial(_made, app, None))
            some = _taken(partial(_made, app, CHANGED_AT))
            _read(app, FORMS["JSON"])  # opens the service
            forms = {name: _taken(partial(_read, app, kind)) for name, kind in FORMS.items()}
        cpu[models] = whole.cpu
        made.append([f"{models:,}", f"{hub.pairs:,}", whole.text, f"{hub.new:,}: {some.text}"])
    ratio = (cpu[many] / many) / (cpu[few] / few)
    row = Row(
        f"report of all of {many:,} models, processor a model against {few:,}",
        f"{1e3 * cpu[many] / many:.2f} ms",
        f"{1e3 * cpu[few] / few:.2f} ms",
        f"{ratio:.2f}×",
        f"≤ {LIMIT}×",
        ratio <= LIMIT,
    )
    sent = [[name, f"{each.result / 1e6:,.1f} MB", each.text] for name, each in forms.items()]
    return Findings(
        [row],
        [
            Table(
                "Processor and memory of making a report",
                ["models", "pairs of kin", "of all", "of the new ones"],
                made,
            ),
            Table(
                f"Answering the report of {many:,} models",
                ["form", "bytes", "processor, memory"],
                sent,
            ),
        ],
    )


@contextmanager
def _planted(models: int) -> Any:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="modelkin-reports-")))
        app = stack.enter_context(open_app(folder))
        hub = PlantedHub(models, min(NEW, models // 10))
        hub.plant(app.database, app.tenant)
        yield app, hub


def _taken(work: Callable[[], Any]) -> Taken:
    results: list[Any] = []
    began = time.process_time()
    memory = extra_memory(lambda: results.append(work()))
    return Taken(time.process_time() - began, memory, results[0])


def _made(app: AppHarness, since: Any) -> int:
    """Make a report as a worker does, and store it."""
    service = app.services[ReportService]
    with app.database.writing() as session:
        job: JobRecord = service.create(session, app.tenant, since)
    finish = service.execute(job, lambda *_: None)
    with app.database.writing() as session:
        finish(session)
    return 0


def _read(app: AppHarness, media_type: str) -> int:
    """The bytes of the first report in a form."""
    report = app.http.get("/v1/reports").json()["items"][-1]["id"]
    with app.http.stream("GET", f"/v1/reports/{report}", headers={"Accept": media_type}) as answer:
        answer.raise_for_status()
        return sum(map(len, answer.iter_bytes()))
