"""The kinds of jobs: those that the service registers, and those that the SDK names."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from app.anatomy import keeping
from app.hubs import polling
from app.hubs.backfill import BACKFILL_TICK
from app.hubs.sync_requests import BACKFILL, INGEST, POLL
from app.jobs.service import JobService
from app.kinship.findings import records as findings
from app.merges.phases import DEADLINE
from app.removed import JOB_KINDS
from app.webhooks import delivery, outbox
from modelkin.types import vocabulary
from tests.support.app.harness import open_app


def test_the_sdk_names_the_kinds_of_the_service(tmp_path: Path) -> None:
    """``JobKind``, a plain text at run time, lists exactly the kinds that have a handler, and those
    that are gone, of which there may be jobs.
    """
    [named] = [
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(vocabulary)))
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "JobKind"
    ]
    assert isinstance(named, ast.Subscript)
    with open_app(tmp_path) as app:
        kinds = app.services[JobService].kinds
    assert not kinds & set(JOB_KINDS)
    assert set(ast.literal_eval(named.slice)) == kinds | set(JOB_KINDS)


def test_short_kinds_and_those_that_wait_for_hubs_have_queues_of_their_own(tmp_path: Path) -> None:
    """No long job delays events, webhooks, deadlines and the check for due polls."""
    with open_app(tmp_path) as app:
        queues = app.services[JobService].queues
    kinds: dict[str, set[str]] = {}
    for kind, queue in queues.items():
        kinds.setdefault(queue, set()).add(kind)
    assert {INGEST, POLL} == kinds["hubs"]
    assert {BACKFILL} == kinds["backfills"]
    checks = {polling.TICK, BACKFILL_TICK, DEADLINE}
    made = {keeping.JOB_KIND, findings.JOB_KIND}
    assert {outbox.JOB_KIND, delivery.JOB_KIND, *made, *checks} == kinds["short"]
    assert {"clustering", "rebuild_buckets"} <= kinds["jobs"]
