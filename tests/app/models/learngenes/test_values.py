"""Where values live: nowhere by default, for keys with the scope where an operator keeps some."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.infra.storage.file_blobs import FileBlobs
from app.operations.maintenance.blob_cleanup import BlobCleanup, orphans
from app.settings import Settings
from app.tenancy.auth.tenants import store_token
from tests.app.models.learngenes.conftest import M
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, assert_problem, ok
from tests.support.models.learngene_files import gene, manifest_of
from tests.support.servers.server_process import Server
from tests.support.servers.webhook_receiver import receiving

SAFETENSORS = "application/vnd.safetensors"
PATH = "/v1/spaces/s/clusters/all/learngene"


def send(http: Any, data: bytes, path: str = PATH) -> Any:
    """Publish a file, over HTTP or within the process."""
    return http.put(path, content=data, headers={"Content-Type": SAFETENSORS})


def stretches(data: bytes) -> list[bytes]:
    """Eight bytes of each tensor's values, as they would stand in any file."""
    values = data[8 + int.from_bytes(data[:8], "little") :]
    return [values[at : at + 8] for at in range(0, len(values), 8)]


@pytest.mark.slow
def test_by_default_no_value_is_stored(tmp_path: Path) -> None:
    """The file is refused; of the manifest all but the values is there, in whichever file."""
    assert 0 == Settings(_env_file=None).max_learngene_bytes
    data = gene()
    server = Server(tmp_path).start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        space = Space(http, M)
        path = f"{space.path('clusters')}/all/learngene"
        assert 201 == http.put(path, json=manifest_of(data)).status_code
        sent = http.put(path, content=data, headers={"Content-Type": SAFETENSORS})
        assert "MODELKIN_MAX_LEARNGENE_BYTES" in assert_problem(sent, 409, "values_not_kept")
        assert_problem(http.get(f"{path}/file"), 409, "values_not_kept")
    assert 0 == server.stop()
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert any(manifest_of(data)["digest"].encode() in content for content in files.values())
    for stretch in stretches(data):
        assert not [file for file, content in files.items() if stretch in content]
    with sqlite3.connect(tmp_path / "m.db") as database:
        assert [(None,)] == database.execute("SELECT blob_key FROM learngenes").fetchall()
    assert not list(tmp_path.rglob("learngenes"))


@on_one_database
def test_the_service_fetches_no_reference(keeper: httpx.Client) -> None:
    """A server that a manifest names gets no request, whatever is asked of the service."""
    space = Space(keeper, M)
    path = f"{space.path('clusters')}/all/learngene"
    with receiving() as receiver:
        reference = {
            "kind": "mlflow",
            "url": receiver.url,
            "model": "start",
            "version": "1",
            "path": "gene",
        }
        ok(keeper.put(path, json=manifest_of(gene(), reference=reference)))
        ok(keeper.get(path))
        ok(keeper.get(space.path("learngenes")))
        refused = keeper.get(f"{path}/file")
        assert receiver.url in assert_problem(refused, 409, "values_not_kept")
        assert [] == receiver.requests


@pytest.mark.slow
def test_where_values_are_kept_the_search_finds_them(tmp_path: Path) -> None:
    """So the search of the test above would have found one."""
    data = gene()
    server = Server(tmp_path, "--max-learngene-bytes=10000").start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        space = Space(http, M)
        path = f"{space.path('clusters')}/all/learngene"
        sent = http.put(path, content=data, headers={"Content-Type": SAFETENSORS})
        assert 201 == sent.status_code
    assert 0 == server.stop()
    (kept,) = [file for file in (tmp_path / "blobs").rglob("learngenes/**/*") if file.is_file()]
    assert data == kept.read_bytes()
    assert all(stretch in kept.read_bytes() for stretch in stretches(data))


@pytest.fixture(scope="module")
def locked(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys and keeps files."""
    flags = "--auth=required", "--max-learngene-bytes=10000"
    server = Server(tmp_path_factory.mktemp("locked"), *flags, backend=backend).start()
    yield server
    assert server.stop() == 0, server.log.read_text()


@on_one_database
@pytest.mark.slow
def test_files_need_the_scope_values(locked: Server) -> None:
    """A key without it publishes and reads manifests, and no file; no key has it by itself."""
    scopes = {"plain": (), "full": ("read", "write", "values"), "alone": ("values",)}
    flags = {name: [f"--scope={scope}" for scope in given] for name, given in scopes.items()}
    keys = {name: new_key(locked, *given) for name, given in flags.items()}
    with httpx.Client(base_url=locked.url, timeout=60, trust_env=False) as http:

        def ask(key: str, method: str, path: str, **given: object) -> httpx.Response:
            headers = {"Authorization": f"Bearer {keys[key]}", **given.pop("headers", {})}  # type: ignore[dict-item]
            return http.request(method, path, headers=headers, **given)  # type: ignore[arg-type]

        ok(ask("plain", "POST", "/v1/spaces", json={"name": "s", "num_parameters": M}))
        typed = {"headers": {"Content-Type": SAFETENSORS}, "content": gene()}
        refused = ask("plain", "PUT", PATH, **typed)
        assert "scope values" in assert_problem(refused, 403, "forbidden")
        made = ok(ask("full", "PUT", PATH, **typed))
        assert keys["full"].startswith(made["published_by"])
        assert 11 == len(made["published_by"])
        assert made == ok(ask("plain", "GET", PATH))
        assert "scope values" in assert_problem(
            ask("plain", "GET", f"{PATH}/file"), 403, "forbidden"
        )
        assert_problem(ask("alone", "GET", f"{PATH}/file"), 403, "forbidden")
        assert gene() == ask("full", "GET", f"{PATH}/file").content
        assert 201 == ask("plain", "PUT", PATH, json=manifest_of(gene(1))).status_code


def test_other_tenants_see_nothing(locked: Server) -> None:
    """A learngene of another tenant is a space that does not exist."""
    key = new_key(locked, "--tenant=other", "--scope=read", "--scope=values")
    headers = {"Authorization": f"Bearer {key}"}
    for path in (PATH, f"{PATH}/file"):
        answer = httpx.get(locked.url + path, headers=headers, trust_env=False)
        assert_problem(answer, 404, "space_not_found")


@pytest.fixture
def app(tmp_path: Path, backend: Backend) -> Iterator[AppHarness]:
    """A service of its own, which keeps one file of a cluster."""
    with open_app(tmp_path, backend, max_learngene_bytes=10_000, keep_learngenes=1) as opened:
        yield opened


def files(folder: Path) -> list[bytes]:
    return [
        file.read_bytes()
        for file in folder.rglob("learngenes/**/*")
        if file.is_file() and not file.name.endswith(".part")
    ]


def blobs_of(app: AppHarness, folder: Path) -> FileBlobs:
    with app.database.reading() as session:
        return FileBlobs(folder / "blobs", store_token(session))


def cleaned(app: AppHarness, folder: Path) -> None:
    """Delete what was released, without a time of grace."""
    BlobCleanup(app.database, blobs_of(app, folder), grace_s=0).run_once()


@on_one_database
@pytest.mark.slow
def test_released_files_are_deleted(app: AppHarness, tmp_path: Path) -> None:
    """Those of older versions, of deleted ones, and of a deleted space; the newest stays."""
    app.create_space("s", M)
    for seed in range(3):
        send(app.http, gene(seed)).raise_for_status()
    assert 3 == len(files(tmp_path))
    cleaned(app, tmp_path)
    assert [gene(2)] == files(tmp_path)
    keys = list(blobs_of(app, tmp_path).keys())
    assert 1 == len(keys)
    with app.database.reading() as session:
        assert set() == orphans(session, keys)
    app.http.delete("/v1/spaces/s").raise_for_status()
    cleaned(app, tmp_path)
    assert [] == files(tmp_path)


@on_one_database
def test_a_refused_file_leaves_nothing(app: AppHarness, tmp_path: Path) -> None:
    """Neither one that is refused by its precondition, nor a repeated one."""
    app.create_space("s", M)
    headers = {"Content-Type": SAFETENSORS, "If-Match": '"0"'}
    assert 412 == app.http.put(PATH, content=gene(), headers=headers).status_code
    assert [] == files(tmp_path)
    for _ in range(2):
        send(app.http, gene()).raise_for_status()
    assert [gene()] == files(tmp_path)


@pytest.mark.slow
def test_learngenes_count_for_the_quota(tmp_path: Path, backend: Backend) -> None:
    """Their files as bytes of supports, until they are deleted."""
    with open_app(tmp_path, backend, max_learngene_bytes=10_000, quota_support_bytes=1000) as app:
        app.create_space("s", M)
        assert 201 == send(app.http, gene(1)).status_code
        assert 201 == send(app.http, gene(2)).status_code
        refused = send(app.http, gene(3))
        assert (507, "quota_exceeded") == (refused.status_code, refused.json()["code"])
        assert 2 == len(files(tmp_path))
        app.http.delete(PATH).raise_for_status()
        assert 201 == send(app.http, gene(9)).status_code


@on_one_database
@pytest.mark.slow
def test_a_lost_file_is_unavailable(app: AppHarness, tmp_path: Path) -> None:
    """The manifest is read still."""
    app.create_space("s", M)
    send(app.http, gene()).raise_for_status()
    for file in tmp_path.rglob("learngenes/**/*"):
        if file.is_file():
            file.unlink()
    assert 503 == app.http.get(f"{PATH}/file").status_code
    assert 200 == app.http.get(PATH).status_code


@on_one_database
@pytest.mark.slow
def test_versions_and_files_survive_a_restart(tmp_path: Path, backend: Backend) -> None:
    """What is acknowledged is there after a kill."""
    server = Server(tmp_path, "--max-learngene-bytes=10000", backend=backend).start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        http.post("/v1/spaces", json={"name": "s", "num_parameters": M}).raise_for_status()
        made = ok(http.put(PATH, content=gene(), headers={"Content-Type": SAFETENSORS}))
    server.kill()
    server = Server(tmp_path, backend=backend).start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        assert made == ok(http.get(PATH))
        assert gene() == http.get(f"{PATH}/file").content
        assert datetime.now(UTC) > datetime.fromisoformat(made["created_at"])
    assert 0 == server.stop()
