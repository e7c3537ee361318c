"""``python -m app check``: what is wrong with settings, folders, stores and the secret key."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import obstore
import pytest
from sqlalchemy import text

from app.infra.db.database import Database
from app.infra.storage.blobs import RIGHTS
from app.infra.storage.object_store import open_store
from tests.support.app.backups import Copies
from tests.support.app.harness import open_app
from tests.support.backends import SQLITE, Backend
from tests.support.servers.redis_server import redis_server
from tests.support.servers.s3_proxy import Fault, s3_proxy
from tests.support.servers.s3_server import S3


@pytest.fixture
def installation(tmp_path: Path) -> Copies:
    """A service that was never started."""
    return Copies(SQLITE, tmp_path)


def test_nothing_is_wrong_and_nothing_is_written(installation: Copies, tmp_path: Path) -> None:
    """A new folder is well: the first start makes what it lacks, and a probe leaves no file."""
    done = installation.run("check")
    assert (0, "") == (done.returncode, done.stderr)
    assert ["ok"] * 3 == [line.split()[0] for line in done.stdout.splitlines()]
    assert "which is made with the first secret" in done.stdout
    assert [] == list(tmp_path.iterdir())


def test_for_programs(tmp_path: Path) -> None:
    """As JSON each line is an object; a wrong setting ends the checks and fails."""
    done = Copies(SQLITE, tmp_path, port="many").run("check", "--json")
    [found] = json.loads(done.stdout)["checks"]
    assert (1, "settings", "fail") == (done.returncode, found["check"], found["state"])
    assert "MODELKIN_PORT: " in found["detail"]


def test_a_variable_that_is_no_setting(tmp_path: Path) -> None:
    """It is named with the setting that may be meant, and what follows is inspected."""
    done = Copies(SQLITE, tmp_path, prot="1").run("check")
    assert 0 == done.returncode
    assert "did you mean MODELKIN_PORT?" in done.stdout.splitlines()[0]
    assert "data folder" in done.stdout


def test_a_full_disk(installation: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 5 GB for the data folder is a warning that says what to do."""
    full = SimpleNamespace(total=1 << 40, used=1 << 40, free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    assert "to do: free some, or move the data folder" in installation.run("check").stdout


def test_a_folder_that_takes_no_files(tmp_path: Path) -> None:
    """/proc takes no file from anyone, whatever its permissions say: that fails, and is named."""
    for setting in (
        {"database_url": "sqlite:////proc/m.db"},
        {"database_url": f"sqlite:///{tmp_path}/m.db", "blob_url": "file:///proc/blobs"},
        {"database_url": f"sqlite:///{tmp_path}/m.db", "download_dir": "/proc/downloads"},
    ):
        done = Copies(SQLITE, tmp_path, **setting).run("check", "--json")
        found = json.loads(done.stdout)["checks"][0]
        assert (1, "data folder", "fail") == (done.returncode, found["check"], found["state"])
        assert found["detail"].startswith("/proc cannot be written")


def test_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    """Where the folder takes files but the database is a folder itself, that is named."""
    (tmp_path / "m.db").mkdir()
    url = f"sqlite:///{tmp_path}/m.db"
    done = Copies(SQLITE, tmp_path, database_url=url).run("check")
    assert 1 == done.returncode
    assert f"{tmp_path}/m.db cannot be written" in done.stdout


Found = dict[str, tuple[str, str]]


def found_by(installation: Copies) -> Found:
    """State and detail of each line, by what was inspected."""
    done = installation.run("check", "--json")
    checks = json.loads(done.stdout)["checks"]
    assert done.returncode == any(check["state"] == "fail" for check in checks)
    return {check["check"]: (check["state"], check["detail"]) for check in checks}


def set_revision(backend: Backend, folder: Path, revision: str) -> None:
    """Write another revision into a migrated database."""
    with closing(Database(backend.url(folder), timeout=5)) as database, database.writing() as s:
        s.execute(text("UPDATE alembic_version SET version_num = :to"), {"to": revision})


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    """A Postgres where none listens fails, and is named without its password."""
    url = "postgresql+psycopg://kin:hidden@127.0.0.1:1/kin"
    done = Copies(SQLITE, tmp_path, database_url=url).run("check")
    [line] = [line for line in done.stdout.splitlines() if "database" in line.split()[1]]
    assert (1, True) == (done.returncode, line.startswith("fail"))
    assert "127.0.0.1:1/kin" in line
    assert "hidden" not in done.stdout


def test_beside_postgres_the_folder_is_that_of_the_supports(tmp_path: Path) -> None:
    """The folder of a SQLite database is not mentioned, since there is none."""
    url = "postgresql+psycopg://kin:hidden@127.0.0.1:1/kin"
    _, detail = found_by(Copies(SQLITE, tmp_path, database_url=url))["data folder"]
    assert detail.endswith(f"GB free for {tmp_path}/blobs")


def test_a_file_that_is_no_database(installation: Copies, tmp_path: Path) -> None:
    """A SQLite file of other content fails, and stays as it is."""
    (tmp_path / "m.db").write_text("corrupt")
    assert "fail" == found_by(installation)["database"][0]
    assert [tmp_path / "m.db"] == list(tmp_path.iterdir())
    assert "corrupt" == (tmp_path / "m.db").read_text()


def test_a_database_of_another_program(backend: Backend, tmp_path: Path) -> None:
    """One whose table of revisions is another one fails in one line, without a traceback."""
    with closing(Database(backend.url(tmp_path), timeout=5)) as database, database.writing() as s:
        s.execute(text("CREATE TABLE alembic_version (other text)"))
    state, detail = found_by(Copies(backend, tmp_path))["database"]
    assert ("fail", True) == (state, "cannot be read" in detail)


def test_a_database_of_this_version(backend: Backend, tmp_path: Path) -> None:
    """It is well, with its revision; SQLite's file stays alone and is the same to the byte."""
    backend.migrated_url(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    state, detail = found_by(Copies(backend, tmp_path))["database"]
    assert ("ok", True) == (state, "as this version needs it" in detail)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_database_in_use(tmp_path: Path) -> None:
    """What an open service has written to its log alone is read."""
    url = SQLITE.migrated_url(tmp_path)
    with closing(Database(url, timeout=5)) as database:
        with database.writing() as session:
            session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        state, detail = found_by(Copies(SQLITE, tmp_path))["database"]
    assert ("fail", True) == (state, "newer version (9999)" in detail)


def test_a_database_of_another_version(backend: Backend, tmp_path: Path) -> None:
    """An older one is a warning, or fails where nothing migrates it; a newer one fails, and so does
    one from before the first release.
    """
    backend.migrated_url(tmp_path)
    set_revision(backend, tmp_path, "0026")
    state, detail = found_by(Copies(backend, tmp_path))["database"]
    assert ("warn", True) == (state, "older version (0026)" in detail)
    assert "fail" == found_by(Copies(backend, tmp_path, migrate="false"))["database"][0]
    for revision in ("9999", "0001"):
        set_revision(backend, tmp_path, revision)
        assert "fail" == found_by(Copies(backend, tmp_path))["database"][0]


def test_an_empty_database(backend: Backend, tmp_path: Path) -> None:
    """The first start makes its tables; where nothing migrates, that fails."""
    assert "ok" == found_by(Copies(backend, tmp_path))["database"][0]
    assert "fail" == found_by(Copies(backend, tmp_path, migrate="false"))["database"][0]


@pytest.mark.redis
def test_redis(tmp_path: Path) -> None:
    """One that answers is well; where none listens that fails, without its password."""
    with redis_server() as server:
        assert "ok" == found_by(Copies(SQLITE, tmp_path, redis_url=server.url))["redis"][0]
    away = Copies(SQLITE, tmp_path, redis_url="redis://:hidden@127.0.0.1:1")
    assert "fail" == found_by(away)["redis"][0]
    assert "hidden" not in away.run("check").stdout


def test_no_key_where_one_is_required(backend: Backend, tmp_path: Path) -> None:
    """A warning until the first key is there, for a new database and for one with tables."""
    locked = Copies(backend, tmp_path, auth="required")
    assert "warn" == found_by(locked)["keys"][0]
    assert 0 == locked.run("migrate").returncode
    assert "warn" == found_by(locked)["keys"][0]
    assert 0 == locked.run("keys", "create").returncode
    assert "keys" not in found_by(locked)


@pytest.fixture
def bucket(s3: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of this test's own."""
    for name, value in s3.variables().items():
        monkeypatch.setenv(name, value)
    return s3.bucket()


def test_a_bucket(bucket: str, s3: S3, tmp_path: Path) -> None:
    """It answers, and nothing stays in it; another one than the database knows fails."""
    installation = Copies(SQLITE, tmp_path, blob_url=bucket)
    new = f"{bucket} answers; the first start gives it an id"
    assert ("ok", new) == found_by(installation)["bucket"]
    assert [] == [*obstore.list(open_store(bucket))]
    with open_app(tmp_path, SQLITE, blob_url=bucket):
        known = f"{bucket} answers, and is the one that the database knows"
        assert ("ok", known) == found_by(installation)["bucket"]
    state, detail = found_by(Copies(SQLITE, tmp_path, blob_url=s3.bucket()))["bucket"]
    assert ("fail", True) == (state, "the database knows the store of its supports as" in detail)


def test_a_bucket_that_is_away(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That there is none, and that no store answers, are two findings; both say what to do."""
    none = Copies(SQLITE, tmp_path, blob_url="s3://no-such-bucket/modelkin")
    state, detail = found_by(none)["bucket"]
    assert ("fail", True) == (state, "there is no such bucket" in detail)
    assert "to do: make the bucket or start its store" in none.run("check").stdout
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    state, detail = found_by(Copies(SQLITE, tmp_path, blob_url=bucket))["bucket"]
    assert ("fail", True) == (state, "the object store failed" in detail)


def test_the_rights_that_a_bucket_refuses(
    bucket: str, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is named; where it refuses all of them, the credentials are."""
    installation = Copies(SQLITE, tmp_path, blob_url=bucket)
    denied: set[str] = set()
    names = {"PUT": "Put", "GET": "Get", "POST": "Delete"}

    def fault(method: str, path: str) -> Fault:
        asked = "List" if "list-type" in path else names[method]
        return "denied" if asked in denied else ""

    with s3_proxy(s3.url) as proxy:
        proxy.fault = fault
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        for refused in ("List", "Put", "Get", "Delete", "Put, Delete"):
            denied = set(refused.split(", "))
            assert ("fail", f"{bucket} refuses to {refused}") == found_by(installation)["bucket"]
        denied = {*RIGHTS}
        assert "to do: correct its credentials, such as" in installation.run("check").stdout


def test_a_bucket_that_overwrites(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that passes over the condition of a creation cannot be used."""
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, key, data, **_: put(store, key, data))
    state, detail = found_by(Copies(SQLITE, tmp_path, blob_url=bucket))["bucket"]
    assert ("fail", True) == (state, "it has to know the condition If-None-Match: *" in detail)
