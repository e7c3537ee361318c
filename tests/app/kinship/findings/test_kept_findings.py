"""Kept findings: after any changes of a space they are what its models' lineages say now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.infra.db.database import Database
from app.infra.errors import Unavailable
from app.jobs.service import JobService
from app.kinship.findings.keeping import FindingKeeper
from app.kinship.findings.making import FindingMaker
from app.kinship.findings.records import JOB_KIND
from app.kinship.findings.service import FindingService
from app.kinship.lineage import LineageService
from app.models.catalog.writer import ModelWriter
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from modelkin import Support
from modelkin.types.reports.audits import LineageFinding
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.http_space import random_support, related

M, K = 10_000, 500


@pytest.fixture
def app(tmp_path: Path, backend: Backend) -> Iterator[AppHarness]:
    """A service without models, whose jobs the test carries out."""
    with open_app(tmp_path, backend) as made:
        made.create_space("kin", M)
        yield made


def space_of(app: AppHarness) -> SpaceRecord:
    with app.database.reading() as session:
        return spaces.get_space(session, app.tenant, "kin")


def judge_all(app: AppHarness, keeper: FindingKeeper) -> int:
    """Judge until nothing is due; how many were judged."""
    judged = 0
    while True:
        keeper.follow(space_of(app))
        some = keeper.judge(space_of(app), until=float("inf"))
        if not some:
            return judged
        judged += some


def kept(app: AppHarness) -> dict[str, LineageFinding]:
    """The kept findings by model."""
    with app.database.reading() as session:
        page = app.services[FindingService].page(session, space_of(app), limit=500, cursor=None)
    assert (0, 0) == (page.totals.pending, page.totals.outdated)
    assert len(page.items) == sum(page.totals.found.values())
    return {each.model: each for each in page.items}


def lineages(app: AppHarness) -> dict[str, Any]:
    """The lineage of every model that says something, as of now."""
    service, found = app.services[LineageService], {}
    names = [each["model"] for each in app.http.get("/v1/spaces/kin/models").json()["items"]]
    for name in names:
        with app.database.reading() as session:
            lineage = service.lineage(session, space_of(app), name)
        if lineage.verdict != "undeclared" or lineage.likely_base is not None:
            found[name] = lineage
    return found


class Changes:
    """Random puts, renames, deletions and declarations in a space."""

    def __init__(self, app: AppHarness, seed: int) -> None:
        self._app, self._rng = app, np.random.default_rng(seed)
        self._known: dict[str, Support] = {}
        self._count = 0
        roots = [random_support(self._rng, M, K) for _ in range(2)]
        self._roots = roots
        for n in range(9):
            self.put(f"stranger-{n}", random_support(self._rng, M, K))

    def put(self, name: str, support: Support, base: str | None = None) -> None:
        self._app.put_support("kin", name, support)
        self._known[name] = support
        if base is not None:
            self.declare(name, base)

    def declare(self, name: str, base: str | None) -> None:
        done = self._app.http.patch(f"/v1/spaces/kin/models/{name}", json={"base_model": base})
        assert 200 == done.status_code, done.text

    def once(self) -> None:
        """One change."""
        rng, names = self._rng, sorted(self._known)
        what = rng.choice(["new", "new", "again", "delete", "rename", "declare", "declare"])
        name = str(rng.choice(names))
        self._count += 1
        if what in {"new", "again"}:
            of = self._roots[int(rng.integers(2))]
            new = name if what == "again" else f"m{self._count}"
            base = str(rng.choice(names)) if rng.random() < 0.5 else None
            self.put(new, related(rng, of, 0.85), None if base == new else base)
        elif what == "delete" and len(names) > 8:
            assert 204 == self._app.http.delete(f"/v1/spaces/kin/models/{name}").status_code
            del self._known[name]
        elif what == "rename":
            writer, new = self._app.services[ModelWriter], f"renamed-{self._count}"
            with self._app.database.writing() as session:
                writer.rename(session, space_of(self._app), name, new)
            self._known[new] = self._known.pop(name)
        else:
            base = str(rng.choice([*names, "absent"]))
            self.declare(name, None if base == name else base)


@pytest.mark.parametrize("seed", [1, 2])
def test_findings_are_the_lineages_of_now(app: AppHarness, seed: int) -> None:
    """In a small space all fields of each, whatever came, went, or has another name or base."""
    changes, keeper = Changes(app, seed), app.services[FindingKeeper]
    for _ in range(6):
        for _ in range(4):
            changes.once()
        judge_all(app, keeper)
        found, now = kept(app), lineages(app)
        assert found.keys() <= now.keys()
        for name, each in found.items():
            for field in ("verdict", "reason", "declared_base", "likely_base", "summary"):
                assert getattr(now[name], field) == getattr(each, field), (name, field)
        for name in now.keys() - found.keys():  # roots
            assert "undeclared" == now[name].verdict
            bases = {base for each in now.values() for base in [each.declared_base] if base}
            assert name in bases


def test_of_a_large_space_only_what_may_differ_is_judged_again(app: AppHarness) -> None:
    """A new model has its kin judged again, and no stranger; verdicts are those of now."""
    maker = FindingMaker(app.services[LineageService])
    keeper = FindingKeeper(app.services[Database], app.services[JobService], maker, small=0)
    changes = Changes(app, 3)
    for _ in range(12):
        changes.once()
    judge_all(app, keeper)
    before = {name: each.judged_at for name, each in kept(app).items()}
    rng = np.random.default_rng(8)
    base = random_support(rng, M, K)
    changes.put("base", base)
    changes.put("tuned", related(rng, base, 0.85), "base")
    assert judge_all(app, keeper) <= 4
    changes.put("far", random_support(rng, M, K))
    changes.put("liar", related(rng, base, 0.85), "far")
    judge_all(app, keeper)
    found = kept(app)
    verdicts = {name: found[name].verdict for name in ("tuned", "liar")}
    assert {"tuned": "consistent", "liar": "mismatch"} == verdicts
    same = [name for name, at in before.items() if name in found and found[name].judged_at == at]
    assert len(same) > len(before) // 2
    assert 204 == app.http.delete("/v1/spaces/kin/models/base").status_code
    judge_all(app, keeper)
    assert "unknown_base" == kept(app)["tuned"].verdict
    changes.put("base", base)
    judge_all(app, keeper)
    assert "consistent" == kept(app)["tuned"].verdict


def test_a_job_judges_a_space_once_it_rests(app: AppHarness) -> None:
    """It is enqueued for a space that is behind, and never beside another one."""
    changes, keeper = Changes(app, 4), app.services[FindingKeeper]
    for _ in range(30):
        changes.once()
    while not (jobs := keeper.enqueue_due()):
        pass
    assert [JOB_KIND] == [job.kind for job in jobs]
    assert [] == keeper.enqueue_due()
    app.worker.run_all()
    assert "succeeded" == app.worker.job(jobs[0].id).state
    assert kept(app)
    assert [] == keeper.enqueue_due()


def test_an_interrupted_job_goes_on(app: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away ends an attempt. What was stored stays, and the next one does the rest.

    Each model is judged once.
    """
    changes, keeper = Changes(app, 5), app.services[FindingKeeper]
    for _ in range(40):
        changes.once()
    service, judged = app.services[LineageService], list[str]()
    inner = service.lineage

    def failing(session: Any, space: SpaceRecord, name: str, *more: Any) -> Any:
        if len(judged) == 5:
            judged.append("")
            raise Unavailable("the disk is away")
        judged.append(name)
        return inner(session, space, name, *more)

    monkeypatch.setattr(service, "lineage", failing)
    keeper.follow(space_of(app))
    keeper.judge(space_of(app), until=float("inf"), limit=4)
    with pytest.raises(Unavailable):
        keeper.judge(space_of(app), until=float("inf"))
    monkeypatch.setattr(service, "lineage", inner)
    judge_all(app, keeper)
    assert 6 == len(judged)
    assert kept(app)
