"""Quotas: what a tenant may not have is refused, with an answer that says what and how much."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select, update
from starlette.testclient import TestClient

from app.infra.db.tables.blobs import ReleasedBlobRow
from app.infra.db.tables.catalog import ModelRow, RevisionRow, SpaceRow
from app.infra.errors import QuotaExceeded
from app.infra.storage.file_blobs import FileBlobs
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.operations.maintenance.blob_cleanup import BlobCleanup
from app.operations.maintenance.blob_sizes import BlobSizes
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import ensure_tenant, store_token
from app.tenancy.quotas import repository
from app.tenancy.quotas.service import QuotaService
from modelkin import Support
from modelkin.wire import SUPPORT
from tests.support.app.harness import AppHarness, open_app, open_keyed_app
from tests.support.backends import SQLITE, Backend
from tests.support.http_space import assert_problem

M = 10_000
_AT = ReleasedBlobRow.released_at
_names = (f"tenant-{number}" for number in itertools.count())


def support(number: int, k: int = 50) -> Support:
    """A support that no other number has."""
    return Support.from_indices(range(number, number + 3 * k, 3), M)


@dataclass
class Owner:
    """A tenant with a key, and with quotas of its own."""

    app: AppHarness
    tenant: Tenant
    headers: dict[str, str]

    @property
    def http(self) -> TestClient:
        """The endpoints."""
        return self.app.http

    def limit(self, **quotas: Any) -> None:
        """Set quotas."""
        with self.app.database.writing() as session:
            self.app.services[QuotaService].set(session, self.tenant.id, quotas)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to a POST."""
        return self.http.post(path, json=body, headers=self.headers)

    def space(self, name: str = "s", **more: Any) -> Any:
        """The answer to the request for a space."""
        return self.post("/v1/spaces", {"name": name, "num_parameters": M, **more})

    def put(self, name: str, content: Support) -> Any:
        """The answer to a support."""
        headers = {**self.headers, "Content-Type": SUPPORT}
        url = f"/v1/spaces/s/supports/{name}"
        return self.http.put(url, content=content.to_bytes(), headers=headers)

    def batch(self, **models: Support) -> list[tuple[str, str]]:
        """The status of each line of a batch, or the code of its error."""
        lines = [
            json.dumps({"model": name, "support": base64.b64encode(s.to_bytes()).decode()})
            for name, s in models.items()
        ]
        headers = {**self.headers, "Content-Type": "application/jsonl"}
        answer = self.http.post("/v1/spaces/s/batch", content="\n".join(lines), headers=headers)
        assert 200 == answer.status_code, answer.text
        results = [json.loads(line) for line in answer.text.splitlines()]
        return [(r["model"], r["error"]["code"] if "error" in r else r["status"]) for r in results]

    def delete(self, path: str) -> None:
        """Delete what has this path."""
        assert 204 == self.http.delete(path, headers=self.headers).status_code

    def stored_bytes(self) -> int:
        """The bytes of its supports, as the database counts them."""
        total = select(func.sum(SpaceRow.support_bytes))
        with self.app.database.reading() as session:
            return int(session.scalar(total.where(SpaceRow.tenant_id == self.tenant.id)) or 0)

    def files(self) -> int:
        """The bytes of the files of its supports, without those that a change released."""
        folder = self.app.services[Settings].blob_dir
        with self.app.database.reading() as session:
            of = select(SpaceRow.id).where(SpaceRow.tenant_id == self.tenant.id)
            ids = list(session.scalars(of))
            released = {folder / key for key in session.scalars(select(ReleasedBlobRow.key))}
        found = {path for i in ids for path in folder.glob(f"*/{i}/*/*") if path.is_file()}
        return sum(path.stat().st_size for path in found - released)


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service of several tenants."""
    folder = tmp_path_factory.mktemp("service")
    with open_keyed_app(folder, backend, keep_revisions=2) as opened:
        yield opened


@pytest.fixture
def owner(app: AppHarness) -> Owner:
    """A tenant that has nothing yet."""
    name = next(_names)
    headers = app.headers_of(name)
    with app.database.writing() as session:
        return Owner(app, ensure_tenant(session, name), headers)


def refused(answer: Any, quota: str, said: str, status: int = 507) -> None:
    """The answer names the quota, and says how much there is."""
    detail = assert_problem(answer, status, "quota_exceeded")
    assert f"(quota {quota})" in detail
    assert said in detail


@pytest.mark.slow
def test_spaces_have_a_quota(owner: Owner) -> None:
    """One more is a 507; one that exists is answered; a deleted one gives its place back."""
    owner.limit(spaces=2)
    assert [201, 201] == [owner.space(name).status_code for name in "ab"]
    refused(owner.space("c"), "spaces", "has 2 spaces and may have 2")
    assert 200 == owner.space("b").status_code
    owner.delete("/v1/spaces/a")
    assert 201 == owner.space("c").status_code


def test_models_have_a_quota(owner: Owner) -> None:
    """One more is a 507 in any space, also a signature; a model that exists may change."""
    owner.limit(models=2)
    assert [201, 201] == [owner.space(name).status_code for name in ("s", "t")]
    assert [201, 201] == [owner.put(name, support(1)).status_code for name in "ab"]
    refused(owner.put("c", support(2)), "models", "has 2 models in its spaces and may have 2")
    headers = {**owner.headers, "Content-Type": "application/vnd.modelkin.signature"}
    signed = support(2).signature().to_bytes()
    sent = owner.http.put("/v1/spaces/t/signatures/c", content=signed, headers=headers)
    refused(sent, "models", "may have 2")
    assert 200 == owner.put("a", support(3)).status_code
    owner.delete("/v1/spaces/s/models/b")
    assert 201 == owner.put("c", support(2)).status_code


def test_of_a_batch_each_line_beyond_the_quota_is_refused(owner: Owner) -> None:
    """New models are stored in order while there is room; those that exist are changed."""
    owner.space()
    owner.put("old", support(1))
    owner.limit(models=3)
    lines = owner.batch(a=support(2), b=support(3), c=support(4), old=support(5), d=support(6))
    full = "quota_exceeded"
    expected = [("a", "created"), ("b", "created"), ("c", full), ("old", "replaced"), ("d", full)]
    assert expected == lines
    assert owner.files() == owner.stored_bytes()


def test_bytes_have_a_quota(owner: Owner) -> None:
    """A support that does not fit is a 507, and leaves no file; a smaller one is stored."""
    owner.space()
    owner.put("a", support(1))
    size = owner.stored_bytes()
    owner.limit(support_bytes=5 * size // 2)
    large = Support.from_indices(range(0, M, 2), M)
    refused(owner.put("b", large), "support_bytes", f"take {size:,} bytes of the {5 * size // 2:,}")
    full = "quota_exceeded"
    assert [("b", "created"), ("c", full), ("a", "unchanged")] == owner.batch(
        b=support(2), c=support(3), a=support(1)
    )
    assert 2 * size == owner.stored_bytes() == owner.files()
    owner.delete("/v1/spaces/s/models/a")
    assert 201 == owner.put("c", support(3)).status_code


def test_queued_jobs_have_a_quota(owner: Owner) -> None:
    """One more is a 429; the same request finds its job; a cancelled one gives its place back."""
    owner.limit(queued_jobs=2)
    for name in "stu":
        owner.space(name)
    owner.put("a", support(1))
    path = "/v1/spaces/{}/jobs"
    first = owner.post(path.format("s"), {"kind": "rebuild_buckets"}).json()["id"]
    assert 202 == owner.post(path.format("t"), {"kind": "rebuild_buckets"}).status_code
    other = path.format("u"), {"kind": "rebuild_buckets"}
    refused(owner.post(*other), "queued_jobs", "2 jobs", 429)
    refused(
        owner.post("/v1/spaces/s/clusterings", {"algorithm": "agglomerative"}),
        "queued_jobs",
        "and 2 may",
        429,
    )
    assert first == owner.post(path.format("s"), {"kind": "rebuild_buckets"}).json()["id"]
    owner.http.post(f"/v1/jobs/{first}/cancel", headers=owner.headers)
    assert 202 == owner.post(*other).status_code


SOURCE = {
    "kind": "huggingface",
    "space": "s",
    "secret": "what only the hub knows",
    "url": "http://127.0.0.1:9",
}
SUBSCRIPTION = {"url": "http://127.0.0.1:9/", "events": ["support.stored"]}


@pytest.mark.parametrize(("quota", "body"), [("sources", SOURCE), ("subscriptions", SUBSCRIPTION)])
def test_sources_and_subscriptions_have_quotas(
    owner: Owner, quota: str, body: dict[str, Any]
) -> None:
    """One more is a 507; a deleted one gives its place back."""
    owner.limit(**{quota: 1})
    made = owner.post(f"/v1/{quota}", body).json()["id"]
    refused(owner.post(f"/v1/{quota}", body), quota, f"has 1 {quota} and may have 1")
    owner.delete(f"/v1/{quota}/{made}")
    assert 201 == owner.post(f"/v1/{quota}", body).status_code


def test_reporters_have_a_quota(owner: Owner) -> None:
    """A new name is a 507, in any space; a known one may report again."""
    owner.limit(reporters=2)
    for name in "st":
        owner.space(name, support_size={"policy": "agreed"})

    def report(space: str, client: str) -> Any:
        return owner.post(f"/v1/spaces/{space}/support-size", {"k_star": 5, "client": client})

    assert [200, 200] == [report("s", "a").status_code, report("t", "a").status_code]
    refused(report("s", "b"), "reporters", "2 reporters of K* are known")
    assert 200 == report("t", "a").status_code


@pytest.mark.slow
def test_a_tenant_without_quotas_of_its_own_has_those_of_the_settings(
    tmp_path: Path,
) -> None:
    """Settings are the default; ``None`` lifts one, and ``default`` is the setting's again."""
    with open_keyed_app(tmp_path, SQLITE, quota_spaces=1) as app:
        headers = app.headers_of("t")
        with app.database.writing() as session:
            owner = Owner(app, ensure_tenant(session, "t"), headers)
        assert [201, 507] == [owner.space(name).status_code for name in "ab"]
        owner.limit(spaces=None)
        assert 201 == owner.space("b").status_code
        owner.limit(spaces="default")
        refused(owner.space("c"), "spaces", "has 2 spaces and may have 1")


def test_writers_at_a_time_never_exceed_a_quota(owner: Owner) -> None:
    """Of twelve that create spaces, and put models in spaces of their own, as many may as there is
    room for.
    """
    spaces = owner.app.services[SpaceService]
    owner.limit(spaces=5)
    assert 5 == at_once(12, lambda n: made_space(owner, spaces, f"s{n}"))
    owner.limit(models=7)

    def put(number: int) -> bool:
        headers = {**owner.headers, "Content-Type": SUPPORT}
        listed = owner.http.get("/v1/spaces", headers=owner.headers).json()["items"]
        url = f"/v1/spaces/{listed[number % 5]['name']}/supports/m{number}"
        content = support(number).to_bytes()
        return owner.http.put(url, content=content, headers=headers).status_code == 201

    assert 7 == at_once(12, put)


def made_space(owner: Owner, spaces: SpaceService, name: str) -> bool:
    """Create a space in a transaction that others overlap; whether that was allowed."""
    plan: dict[str, Any] = {"num_parameters": M, "layout": None, "scheme": None}
    try:
        with owner.app.database.writing() as session:
            spaces.create(session, owner.tenant, name, RequestedSpace(**plan, num_perm=16, seed=1))
    except QuotaExceeded:
        return False
    return True


def at_once(count: int, act: Callable[[int], bool]) -> int:
    """How many of several threads succeed that begin together."""
    ready = threading.Barrier(count)

    def begin(number: int) -> bool:
        ready.wait()
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return sum(pool.map(begin, range(count)))


@pytest.mark.slow
def test_the_counted_bytes_are_those_of_the_files(owner: Owner) -> None:
    """Through changes, repeats, deletions and refusals, with two revisions kept and the first."""
    owner.space()
    for number, name in enumerate("abacabadbacdabca"):
        owner.put(name, support(number, k=20 + 7 * number))
        owner.put(name, support(number, k=20 + 7 * number))
        if number % 5 == 4:
            owner.delete(f"/v1/spaces/s/models/{name}")
        if number == 9:
            owner.limit(models=3)
        assert owner.files() == owner.stored_bytes(), (number, name)
    assert owner.stored_bytes() > 0
    owner.delete("/v1/spaces/s")
    assert 0 == owner.stored_bytes()


def test_blobs_from_before_sizes_were_stored_are_measured(owner: Owner) -> None:
    """Present ones, kept ones and those of a model that changed meanwhile, each once; a lost one
    counts as nothing, until it is repaired.
    """
    owner.space()
    for number, name in enumerate("aabbbc"):
        owner.put(name, support(number, k=20 + 9 * number))
    before = owner.stored_bytes()
    with owner.app.database.writing() as session:
        ids = list(
            session.scalars(select(ModelRow.id).where(ModelRow.tenant_id == owner.tenant.id))
        )
        for rows, of in ((ModelRow, ModelRow.id), (RevisionRow, RevisionRow.model_id)):
            session.execute(update(rows).where(of.in_(ids)).values(blob_size=None))
        mine = SpaceRow.tenant_id == owner.tenant.id
        session.execute(update(SpaceRow).where(mine).values(support_bytes=0))
        key = session.scalar(select(ModelRow.blob_key).where(ModelRow.id == ids[-1]))
        token = store_token(session)
    owner.put("a", support(9, k=100))
    folder = owner.app.services[Settings].blob_dir
    (folder / str(key)).unlink()
    sizes = BlobSizes(owner.app.database, FileBlobs(folder, token))
    sizes.run_once(threading.Event())
    assert owner.files() == owner.stored_bytes() > before / 2
    assert 200 == owner.put("c", support(5, k=65)).status_code
    assert owner.files() == owner.stored_bytes()
    owner.delete("/v1/spaces/s/models/a")
    assert owner.files() == owner.stored_bytes()


def test_what_a_tenant_stores_is_summed_without_its_layouts(tmp_path: Path) -> None:
    """SQLite reads an index: in the rows the counts come after layouts of up to a megabyte."""
    with open_app(tmp_path) as app, app.database.reading() as session:
        connection, seen = session.connection(), list[str]()
        event.listen(connection, "before_cursor_execute", lambda *args: seen.append(args[2]))
        repository.read_usage(session, app.tenant.id)
        asked = (0, 0, app.tenant.id, app.tenant.id)
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {seen[0]}", asked).all()
    assert any("spaces USING COVERING INDEX" in row[3] for row in plan), plan


@pytest.mark.slow
def test_released_supports_take_no_more_than_the_quota(owner: Owner) -> None:
    """Of replacements and deletions without end only the newest stay for their day of grace."""
    owner.space()
    owner.limit(support_bytes=5_000)
    for number in range(60):
        owner.put("a", support(number, k=100))
    with owner.app.database.reading() as session:
        mine = ReleasedBlobRow.tenant_id == owner.tenant.id
        before = session.scalars(select(ReleasedBlobRow.key).where(mine).order_by(_AT)).all()
        token = store_token(session)
    blobs = FileBlobs(owner.app.services[Settings].blob_dir, token)
    assert len(before) > 40
    cleanup = BlobCleanup(owner.app.database, blobs, 86400.0, owner.app.services[QuotaService])
    cleanup.run_once()
    left = [key for key in before if blobs.size(key) is not None]
    assert before[-len(left) :] == left
    assert 4_000 <= sum(blobs.size(key) or 0 for key in left) <= 5_000
    assert 200 == owner.put("a", support(99)).status_code
    assert owner.files() == owner.stored_bytes()
