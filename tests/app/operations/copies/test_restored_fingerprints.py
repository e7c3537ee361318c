"""A backup of a service with fingerprints, anatomies and reports, restored elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.fingerprints.records import Facts
from modelkin.wire import FINGERPRINT
from tests.app.anatomy.families import Family, derived, stranger
from tests.support.app.backups import Copies
from tests.support.app.harness import open_app
from tests.support.backends import Backend

FACTS = Facts(("base",), "finetune", "mit", datetime(2026, 1, 2, tzinfo=UTC), 90_800_000)
QUESTIONS = (
    *("/v1/fingerprints", "/v1/fingerprints/child", "/v1/reports", "/v1/report-policy"),
    *(f"/v1/fingerprints/{name}/anatomy" for name in ("base", "child", "stranger")),
    *(f"/v1/fingerprints/{name}/relatives" for name in ("base", "child")),
    *("/v1/fingerprints/child/tensors?with=base", "/v1/fingerprints/child/lineage"),
)
FORMS = ("application/json", "text/html", "text/csv", "application/vnd.cyclonedx+json")


def answers(family: Family) -> dict[str, Any]:
    """What the service says of all that it has, in all forms."""
    http = family.app.http
    said = {path: http.get(path).raise_for_status().json() for path in QUESTIONS}
    [report] = said["/v1/reports"]["items"]
    for form in FORMS:
        path = f"/v1/reports/{report['id']}"
        said[form] = http.get(path, headers={"Accept": form}).raise_for_status().content
    for name in ("base", "child"):
        kind = {"Accept": FINGERPRINT}
        stored = http.get(f"/v1/fingerprints/{name}", headers=kind)
        said[f"payload of {name}"] = stored.raise_for_status().content
    return said


def fill(family: Family) -> None:
    """A base, a child that declares it, a stranger, what the service says of them, a report."""
    family.put("base", stranger(0), stated_by="hub")
    family.put("child", derived("fused"), facts=FACTS)
    family.put("child", derived("up-scaled"), facts=FACTS)  # the second revision
    family.put("stranger", stranger(1))
    family.put("gone", stranger(2))
    family.delete("gone")
    family.work()
    http = family.app.http
    http.put("/v1/report-policy", json={"every_seconds": 86_400}).raise_for_status()
    http.post("/v1/reports", json={}).raise_for_status()
    family.work()


@pytest.mark.slow
def test_a_restored_service_says_of_models_what_it_said(backend: Backend, tmp_path: Path) -> None:
    """Payloads, statements, anatomies and reports are the same, and ``verify --deep`` finds
    nothing, neither in the copy nor after it has gone on.
    """
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    with open_app(before, backend) as app:
        family = Family(app)
        fill(family)
        expected = answers(family)
        Copies(backend, before).back_up(tmp_path / "to")
        family.put("later", derived("renamed"))
    restored = Copies(backend, after)
    restored.put_back(tmp_path / "to")
    assert "" == restored.verify()
    with open_app(after, backend, prepared=True) as app:
        family = Family(app)
        assert expected == answers(family)
        family.put("later", derived("renamed"))
        family.delete("stranger")
        family.work()
        found = family.anatomy("later")
        assert ["base", "child"] == [each["model"] for each in found["parents"]]
    assert "" == restored.verify()
