"""A service on an object store: what a bucket that is away, slow, or another's, changes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
from sqlalchemy import update

from app.infra.db.tables.tenants import InstallationRow
from app.infra.errors import Unavailable
from app.infra.storage.object_store import open_store
from app.settings import Settings
from app.tenancy.auth.tenants import store_token
from modelkin import Layout, Support
from tests.support.app.backups import Copies
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.blob_files import blob_files, named_keys
from tests.support.fixtures import on_one_database
from tests.support.http_space import SUPPORT, random_support
from tests.support.servers.s3_proxy import Fault, S3Proxy, s3_proxy
from tests.support.servers.s3_server import S3
from tests.support.servers.waiting import wait_for

M = 200_000
LAYOUT = Layout.of([("w", (1900, 100)), ("mask", (100, 100))])
MASK = 190_000 + np.flatnonzero(np.tril(np.ones((100, 100))))


@pytest.fixture
def proxy(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """A proxy that the services of a test go through."""
    with s3_proxy(s3.url) as running:
        for name, value in s3.variables(running.url).items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def bucket(s3: S3) -> str:
    """A bucket of this test's own."""
    return s3.bucket()


@pytest.fixture
def stored(
    proxy: S3Proxy, bucket: str, backend: Backend, tmp_path: Path
) -> Iterator[tuple[AppHarness, list[Support]]]:
    """A service with the space ``s`` of five models, of which its cache has nothing."""
    assert proxy.url
    random = np.random.default_rng(19)
    supports = [random_support(random, M, 20_000) for _ in range(5)]
    settings: dict[str, Any] = {"blob_url": bucket, "blob_cache_dir": tmp_path / "fetched"}
    with open_app(tmp_path, backend, support_cache_bytes=0, **settings) as app:
        app.create_space("s", M)
        for number, support in enumerate(supports):
            app.put_support("s", f"m{number}", support)
        empty(app)
        yield app, supports


def empty(app: AppHarness) -> None:
    """Make the service's machine a new one, with none of the supports."""
    shutil.rmtree(app.services[Settings].support_cache_dir)


def put(app: AppHarness, model: str, support: Support) -> int:
    headers = {"Content-Type": SUPPORT}
    path = f"/v1/spaces/s/supports/{model}"
    return app.http.put(path, content=support.to_bytes(), headers=headers).status_code


def neighbors(app: AppHarness, support: Support) -> Any:
    answer = app.http.post(
        "/v1/spaces/s/neighbors", content=support.to_bytes(), headers={"Content-Type": SUPPORT}
    )
    assert 200 == answer.status_code, answer.text
    return answer.json()


@on_one_database
def test_a_bucket_that_is_away_has_not_lost_a_support(
    stored: tuple[AppHarness, list[Support]], proxy: S3Proxy
) -> None:
    """The same content again is a 503 that moves nothing, and then 200 without a write."""
    app, supports = stored
    before = named_keys(app.database)
    proxy.fail("reset")
    assert 503 == put(app, "m0", supports[0])
    assert 503 == put(app, "new", supports[0])
    assert 404 == app.http.get("/v1/spaces/s/models/new").status_code
    proxy.fail("")
    wait_for(lambda: put(app, "m0", supports[0]) != 503)  # until the bucket is asked again
    proxy.asked.clear()
    assert 200 == put(app, "m0", supports[0])
    assert {"GET"} == set(proxy.asked)
    assert before == named_keys(app.database)


@on_one_database
@pytest.mark.smoke
def test_what_is_on_this_machine_is_read_without_the_bucket(
    stored: tuple[AppHarness, list[Support]], proxy: S3Proxy
) -> None:
    """Metadata, signatures and supports that were read once go on; others are estimated."""
    app, supports = stored
    whole = neighbors(app, supports[0])
    assert ({"exact"}, False) == ({i["estimate"] for i in whole["items"]}, whole["degraded"])
    proxy.fail("reset")
    assert whole == neighbors(app, supports[0])
    assert supports[1] == Support.from_bytes(app.http.get("/v1/spaces/s/supports/m1").content)
    empty(app)
    answer = neighbors(app, supports[0])
    assert ({"signature"}, True) == ({i["estimate"] for i in answer["items"]}, answer["degraded"])
    assert "m0" == answer["items"][0]["model"]
    assert 503 == app.http.get("/v1/spaces/s/supports/m1").status_code
    for path in ("models/m1", "signatures/m1"):
        assert 200 == app.http.get(f"/v1/spaces/s/{path}").status_code


@on_one_database
def test_changes_of_metadata_outlast_a_silent_bucket(
    stored: tuple[AppHarness, list[Support]], proxy: S3Proxy
) -> None:
    """New supports take all turns of writing, until they are refused; a tag waits no longer."""
    app, supports = stored
    proxy.asked.clear()
    with ThreadPoolExecutor(8) as clients, proxy.silent():
        refused = [clients.submit(put, app, f"new{i}", supports[0]) for i in range(8)]
        wait_for(lambda: proxy.asked["PUT"] == 7)
        tagged = app.http.patch("/v1/spaces/s/models/m0", json={"tags": ["x"]})
        assert 200 == tagged.status_code, tagged.text
        assert {503} == {each.result() for each in refused}


@on_one_database
def test_a_slow_bucket_degrades_an_answer_and_the_next_is_whole(
    stored: tuple[AppHarness, list[Support]], proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search waits two seconds for all its candidates together; the downloads go on."""
    monkeypatch.setattr("app.search.prepared_query._FETCH_S", 0.1)
    app, supports = stored
    proxy.delay = 0.5
    assert neighbors(app, supports[0])["degraded"]
    proxy.delay = 0.0
    while neighbors(app, supports[0])["degraded"]:
        time.sleep(0.05)
    assert {"exact"} == {each["estimate"] for each in neighbors(app, supports[0])["items"]}


@on_one_database
@pytest.mark.slow
def test_constants_whose_supports_are_late_are_left_out_later(
    stored: tuple[AppHarness, list[Support]], proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the supports show is known once they are here; an answer that did not wait for it says
    so, and finds no base consistent.
    """
    app, _ = stored
    made = {"name": "t", "num_parameters": M, "layout": LAYOUT.to_json()}
    app.http.post("/v1/spaces", json={**made, "importance": {"kind": "weight"}}).raise_for_status()
    random = np.random.default_rng(3)
    base, stranger = (np.sort(random.choice(M - 10_000, 2000, replace=False)) for _ in range(2))
    for name, own in {"child": base, "base": base, "stranger": stranger}.items():
        app.put_support("t", name, Support.from_indices(np.concatenate([own, MASK]), M))
    app.http.patch("/v1/spaces/t/models/child", json={"base_model": "base"}).raise_for_status()
    monkeypatch.setattr("app.search.constants._FETCH_S", 0.0)

    def ask(what: str, words: str) -> tuple[Any, Any, bool]:
        answer = app.http.get(f"/v1/spaces/t/{what}", params={"model": "child"})
        found = answer.raise_for_status().json()
        return found.get("verdict"), found["constant_tensors"], "ask again" in (found[words] or "")

    empty(app)
    proxy.delay = 0.5
    assert ("inconclusive", [], True) == ask("lineage", "summary")
    proxy.delay = 0.0
    wait_for(lambda: ask("lineage", "summary") == ("consistent", ["mask"], False))
    assert (None, ["mask"], False) == ask("neighbors", "note")


@on_one_database
def test_a_sketch_is_read_without_its_support(
    stored: tuple[AppHarness, list[Support]],
    proxy: S3Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signature with a sketch is compared with sketches; no support is downloaded for them."""
    monkeypatch.setattr("app.search.prepared_query._FETCH_S", 60)
    app, supports = stored
    put_sketch(app, supports[0])
    proxy.asked.clear()
    answer = app.http.get("/v1/spaces/s/neighbors", params={"model": "q"}).json()
    assert {"sketch"} == {each["estimate"] for each in answer["items"]}
    assert 5 == proxy.asked["GET"]
    assert set() == blob_files(tmp_path)


@on_one_database
def test_sketches_that_are_late_leave_their_models_to_signatures(
    stored: tuple[AppHarness, list[Support]], proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked for side by side, and a search waits no longer for them than for supports."""
    app, supports = stored
    put_sketch(app, supports[0])
    proxy.asked.clear()
    released = threading.Event()
    proxy.fault = lambda *_: "" if released.wait(60) else "reset"
    monkeypatch.setattr("app.search.prepared_query._FETCH_S", 0.1)
    try:
        answer = app.http.get("/v1/spaces/s/neighbors", params={"model": "q"}).json()
        while proxy.asked["GET"] < 5:
            time.sleep(0.05)
    finally:
        released.set()
    assert {"signature"} == {each["estimate"] for each in answer["items"]}
    assert (5, True) == (len(answer["items"]), answer["degraded"])
    monkeypatch.setattr("app.search.prepared_query._FETCH_S", 60)
    answer = app.http.get("/v1/spaces/s/neighbors", params={"model": "q"}).json()
    assert ({"sketch"}, False) == ({i["estimate"] for i in answer["items"]}, answer["degraded"])


def put_sketch(app: AppHarness, support: Support) -> None:
    """Send a signature ``q`` with its sketch to a machine that has no other sketches."""
    shutil.rmtree(app.services[Settings].sketch_dir)
    stated = app.http.put("/v1/spaces/s/signatures/q", json=signature_json(support.signature()))
    assert stated.is_success, stated.text
    sketch = app.http.put(
        "/v1/spaces/s/sketches/q",
        content=support.sketch().to_bytes(),
        headers={"Content-Type": "application/vnd.modelkin.sketch"},
    )
    assert sketch.is_success, sketch.text


def signature_json(signature: Any) -> dict[str, Any]:
    return {
        "scheme": signature.scheme,
        "num_perm": signature.num_perm,
        "seed": signature.seed,
        "support_size": signature.support_size,
        "values": signature.values.tolist(),
    }


@on_one_database
def test_a_service_that_finds_another_store_does_not_start(
    stored: tuple[AppHarness, list[Support]],
    s3: S3,
    backend: Backend,
    tmp_path: Path,
) -> None:
    """An empty bucket, or a folder of one machine: both ids are named, and nothing is written."""
    app, _ = stored
    for url in (s3.bucket(), f"file://{tmp_path}/own"):
        for _ in range(2):
            with (
                pytest.raises(Unavailable, match=r"knows the store .* as [0-9a-f]{32}.*has none"),
                open_app(tmp_path, backend, blob_url=url, prepared=True),
            ):
                pass
    assert 200 == app.http.get("/v1/spaces/s/models/m1").status_code


@on_one_database
def test_a_database_that_knows_no_store_yet_takes_none_without_its_supports(
    proxy: S3Proxy, bucket: str, backend: Backend, tmp_path: Path
) -> None:
    """After an upgrade, the first start on an empty bucket or folder is refused; the own one is
    taken, though it lacks a support.
    """
    own = f"file://{tmp_path}/own"
    with open_app(tmp_path, backend, blob_url=own) as app:
        app.create_space("s", M)
        for name, start in (("a", 0), ("b", 1)):
            app.put_support("s", name, Support.from_indices(range(start, M, 7), M))
        with app.database.writing() as session:
            session.execute(update(InstallationRow).values(store_id=None))
    (mark,) = (tmp_path / "own").glob("*/.store")
    mark.unlink()
    assert proxy.url
    for url in (bucket, f"file://{tmp_path}/empty"):
        with (
            pytest.raises(Unavailable, match="has none of the newest 2: set MODELKIN_BLOB_URL"),
            open_app(tmp_path, backend, blob_url=url, prepared=True),
        ):
            pass
    next(iter(blob_files(tmp_path / "own"))).unlink()
    with open_app(tmp_path, backend, blob_url=own, prepared=True):
        assert mark.exists()


@on_one_database
def test_machines_with_a_folder_each_do_not_share_a_database(
    backend: Backend, tmp_path: Path
) -> None:
    """The second one is refused at its start, with both ids, rather than lose supports later."""
    with open_app(tmp_path, backend, blob_url=f"file://{tmp_path}/one"):
        pass
    with open_app(tmp_path, backend, blob_url=f"file://{tmp_path}/one"):
        pass
    (mark,) = (tmp_path / "one").glob("*/.store")
    theirs = tmp_path / "two" / mark.parent.name / ".store"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("ab" * 16)
    with (
        pytest.raises(Unavailable, match=rf"as {mark.read_text()}.* is {'ab' * 16}: set MODELKIN"),
        open_app(tmp_path, backend, blob_url=f"file://{tmp_path}/two"),
    ):
        pass
    theirs.write_text(mark.read_text())  # as the message says, where all was moved
    with open_app(tmp_path, backend, blob_url=f"file://{tmp_path}/two"):
        pass


@on_one_database
def test_a_verification_reads_the_bucket_side_by_side(
    stored: tuple[AppHarness, list[Support]],
    proxy: S3Proxy,
    bucket: str,
    backend: Backend,
    tmp_path: Path,
) -> None:
    """All five models at a time; what is damaged there is found, whatever this machine has.

    An object of another key is found without reading its data.
    """
    assert stored
    cache = str(tmp_path / "fetched")
    installation = Copies(backend, tmp_path, blob_url=bucket, blob_cache_dir=cache)
    all_ask = threading.Barrier(5)

    def together(method: str, path: str) -> Fault:
        if method == "GET" and "/1/" in path:
            all_ask.wait(60)
        return ""

    proxy.fault = together
    verified = installation.run("verify")
    assert 0 == verified.returncode, verified.stdout + verified.stderr
    proxy.fail("")
    store = open_store(bucket)
    with stored[0].database.reading() as session:
        token = store_token(session)
    [damaged] = [each["path"] for each in obstore.list(store, f"{token}/1/").collect()][:1]
    whole = bytes(obstore.get(store, damaged).bytes())
    [other] = [each["path"] for each in obstore.list(store, f"{token}/1/").collect()][1:2]
    obstore.put(store, damaged, bytes(obstore.get(store, other).bytes()))
    exchanged = installation.run("verify")
    assert (1, True) == (exchanged.returncode, damaged in exchanged.stdout + exchanged.stderr)
    obstore.put(store, damaged, whole[:-1] + bytes([whole[-1] ^ 1]))
    assert damaged in installation.verify()
    backup = installation.run("backup", tmp_path / "to")  # of all the others
    assert (1, True) == (backup.returncode, damaged in backup.stderr + backup.stdout)
    assert "4 supports, 4 of them copied" in backup.stdout


def test_a_backup_of_a_bucket_is_restored_anywhere(
    stored: tuple[AppHarness, list[Support]], s3: S3, bucket: str, backend: Backend, tmp_path: Path
) -> None:
    """To another bucket, or to a folder; never over supports of the installation."""
    _, supports = stored
    cache = str(tmp_path / "cache")
    source = Copies(backend, tmp_path, blob_url=bucket, blob_cache_dir=cache)
    assert "5 supports, 5 of them copied" in source.back_up(tmp_path / "to")
    assert "5 supports, 0 of them copied" in source.back_up(tmp_path / "to")
    assert "" == source.verify()
    for name, url in (("bucket", s3.bucket()), ("folder", f"file://{tmp_path}/restored")):
        folder = tmp_path / name
        own: dict[str, Any] = {"blob_url": url, "blob_cache_dir": folder / "fetched"}
        target = Copies(backend, folder, **{key: str(value) for key, value in own.items()})
        target.put_back(tmp_path / "to")
        assert "" == target.verify()
        with open_app(folder, backend, prepared=True, **own) as restored:
            read = restored.http.get("/v1/spaces/s/supports/m3").content
            assert supports[3] == Support.from_bytes(read)
    taken = Copies(backend, tmp_path / "third", blob_url=bucket, blob_cache_dir=cache)
    refused = taken.run("restore", tmp_path / "to")
    assert (1, True) == (refused.returncode, "has supports of this installation" in refused.stderr)
