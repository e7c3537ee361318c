"""``verify`` finds what is missing, damaged, foreign or wrong, and mends what can be computed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import psycopg
import pytest
from sqlalchemy import delete, insert, select, update

from app.infra.db.tables.catalog import (
    ModelRow,
    RevisionRow,
    SignatureRow,
    SpaceRow,
    TagRow,
    TensorCountsRow,
)
from app.infra.db.tables.hubs import SourceRow
from app.infra.db.tables.index import BucketEntryRow
from app.infra.db.tables.webhooks import SubscriptionRow
from app.infra.storage.encryption import Secrets
from app.infra.storage.encryption_keys import parse_keys
from app.infra.storage.file_blobs import FileBlobs
from app.infra.storage.redis import RedisServer
from app.models.index.buckets.protocol import Buckets, BucketState
from app.models.index.buckets.redis import RedisBuckets
from app.models.index.buckets.service import BucketService
from app.models.spaces.repositories.spaces import all_spaces
from app.operations.cli import verification as command
from app.operations.copies.bucket_checks import BucketChecks
from app.operations.copies.records import Finding
from app.operations.copies.verification import Verification
from app.stores import open_buckets
from app.tenancy.auth.tenants import store_token
from modelkin.wire import SIGNATURE
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.blob_files import age_files
from tests.support.fixtures import on_one_database
from tests.support.http_space import random_support, related
from tests.support.servers.redis_server import RedisProcess

pytestmark = on_one_database

M, K = 10_000, 200
LAYOUT = [{"name": "a", "shape": [100, 60]}, {"name": "b", "shape": [4_000]}]


class Installation:
    """A service with all kinds of models in two spaces."""

    def __init__(self, app: AppHarness, folder: Path) -> None:
        self.app, self.database, self.folder = app, app.database, folder / "blobs"
        self.url = str(app.database.url.render_as_string(hide_password=False))
        with self.database.reading() as session:
            self.realm = store_token(session)
        self.blobs = FileBlobs(self.folder, self.realm)

    def fill(self) -> None:
        """Store models, replace and delete some, and build the buckets."""
        random = np.random.default_rng(3)
        base = random_support(random, M, K)
        for name, body in (
            ("s", {"num_parameters": M, "layout": LAYOUT}),
            ("other", {"num_parameters": M}),
        ):
            made = self.app.http.post("/v1/spaces", json={"name": name, **body})
            assert 201 == made.status_code, made.text
            for model in ("a", "b", "c", "gone", "a"):
                self.app.put_support(name, model, related(random, base, 0.8), tag="t")
            self.app.http.delete(f"/v1/spaces/{name}/models/gone")
        signed = random_support(random, M, K).signature().to_bytes()
        headers = {"Content-Type": SIGNATURE}
        put = self.app.http.put("/v1/spaces/s/signatures/signed", content=signed, headers=headers)
        assert 201 == put.status_code, put.text
        self.rebuild()

    def rebuild(self) -> None:
        """Bring all buckets up to date."""
        with self.database.reading() as session:
            spaces = all_spaces(session)
        with self.buckets() as buckets:
            for space in spaces:
                buckets.rebuild(space)

    @contextmanager
    def buckets(self) -> Iterator[BucketService]:
        """The buckets in the database."""
        with open_buckets(self.database, None) as buckets:
            yield buckets

    def findings(self, *, deep: bool = True) -> list[Finding]:
        """All findings."""
        with self.buckets() as buckets:
            return list(Verification(self.database, self.blobs, buckets, deep=deep).findings())

    def problem(self, *, deep: bool = True) -> str:
        """The only finding, in words."""
        (finding,) = self.findings(deep=deep)
        return str(finding)

    def run(self, *flags: str, monkeypatch: pytest.MonkeyPatch) -> int:
        """The exit code of the command."""
        monkeypatch.setenv("MODELKIN_DATABASE_URL", self.url)
        monkeypatch.setenv("MODELKIN_BLOB_URL", f"file://{self.folder}")
        return command.run(list(flags))

    def value(self, column: Any, model: str = "a", space: str = "s") -> Any:
        """A column of a model of a space."""
        of_space = select(SpaceRow.id).where(SpaceRow.name == space).scalar_subquery()
        query = select(column).where(ModelRow.name == model, ModelRow.space_id == of_space)
        with self.database.reading() as session:
            return session.scalars(query).one()

    def change(self, *statements: Any) -> None:
        """Change rows behind the back of the service."""
        with self.database.writing() as session:
            for statement in statements:
                session.execute(statement)

    def change_foreign(self, *statements: str) -> None:
        """The same, where foreign keys would refuse it."""
        if self.database.url.get_backend_name() == "sqlite":
            with closing(sqlite3.connect(str(self.database.url.database))) as connection:
                for statement in statements:
                    connection.execute(statement)
                connection.commit()
        else:
            url = self.database.url.set(drivername="postgresql", username="postgres")
            with psycopg.connect(url.render_as_string()) as superuser:
                for statement in ("SET LOCAL session_replication_role = replica", *statements):
                    superuser.execute(statement.encode())

    @contextmanager
    def damaged(self, path: Path, data: bytes | None) -> Iterator[None]:
        """A file with other bytes, or without the file."""
        whole = path.read_bytes()
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        try:
            yield
        finally:
            path.write_bytes(whole)

    @contextmanager
    def changed(self, column: Any, value: Any, model: str = "a") -> Iterator[None]:
        """A row of a model of ``s`` with another value."""
        of, before = ModelRow.id == self.value(ModelRow.id, model), self.value(column, model)
        self.change(update(ModelRow).where(of).values({column: value}))
        try:
            yield
        finally:
            self.change(update(ModelRow).where(of).values({column: before}))


@pytest.fixture(scope="module")
def installation(
    backend: Backend, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """One for all tests: each leaves it whole."""
    folder = tmp_path_factory.mktemp("installation")
    with open_app(folder, backend, keep_revisions=2) as app:
        made = Installation(app, folder)
        made.fill()
        yield made
        assert [] == [str(finding) for finding in made.findings()]


def test_a_whole_installation_has_no_findings(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 0 and not a line, shallow and deep."""
    for flags in ((), ("--deep", "--repair")):
        assert 0 == installation.run(*flags, monkeypatch=monkeypatch)
        shown = capsys.readouterr()
        assert "" == shown.out
        assert "verified 7 models" in shown.err


def flipped(data: bytes) -> bytes:
    """One bit is another."""
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


def cut(data: bytes) -> bytes:
    """One byte is missing."""
    return data[:-1]


def gone(_: bytes) -> None:
    """No file."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "shallow", "words"),
    [
        (flipped, 0, "is damaged"),
        (cut, 1, "bytes and not"),
        (gone, 1, "is missing"),
    ],
)
@pytest.mark.parametrize("past", [False, True], ids=["present", "past"])
def test_a_damaged_file_is_found(
    installation: Installation,
    damage: Callable[[bytes], bytes | None],
    shallow: int,
    words: str,
    past: bool,
) -> None:
    """A flipped bit by its digest, a cut or missing file without reading it; one line each."""
    key = installation.value(ModelRow.blob_key)
    if past:
        with installation.database.reading() as session:
            of = RevisionRow.model_id == installation.value(ModelRow.id)
            keys = session.scalars(select(RevisionRow.blob_key).where(of)).all()
        key = next(k for k in keys if k != key)
    path = installation.folder / key
    with installation.damaged(path, damage(path.read_bytes())):
        assert shallow == len(installation.findings(deep=False))
        (finding,) = installation.findings()
    line = str(finding)
    assert ("revision 1" in line, True) == (past, line.startswith("space 's' ("))
    assert ("model 'a'" in line, key in line, words in line) == (True, True, True)
    assert finding.repair is None


def test_the_command_prints_a_line_for_a_finding(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code is 1, and says with --repair that this one is not repaired."""
    path = installation.folder / installation.value(ModelRow.blob_key)
    with installation.damaged(path, flipped(path.read_bytes())):
        assert 0 == installation.run(monkeypatch=monkeypatch)
        assert 1 == installation.run("--deep", monkeypatch=monkeypatch)
        assert 1 == len(capsys.readouterr().out.splitlines())
        assert 1 == installation.run("--deep", "--repair", monkeypatch=monkeypatch)
        assert "(not repaired)" in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_named(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """One line, and not one for each model."""
    monkeypatch.setattr(installation, "folder", tmp_path / "elsewhere")
    assert 1 == installation.run(monkeypatch=monkeypatch)
    shown = capsys.readouterr()
    assert "" == shown.out
    assert "is MODELKIN_BLOB_URL set as for the service?" in shown.err


def test_an_orphan_is_found(installation: Installation) -> None:
    """A file that no row names, once it is too old to be a write under way."""
    path = installation.folder / installation.realm / "1" / "ab" / ("ab" * 16)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"left by a crash")
    assert [] == installation.findings(deep=False)
    age_files(installation.folder, 7200)
    assert f"{'ab' * 16}: no row names it" in installation.problem(deep=False)
    path.unlink()


@pytest.mark.slow
def test_wrong_counts_are_found_and_mended(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Supports, signatures and bytes of a space."""
    of = update(SpaceRow).where(SpaceRow.name == "s")
    for column in (SpaceRow.supports, SpaceRow.signatures, SpaceRow.support_bytes):
        installation.change(of.values({column: 77}))
        assert "its row counts" in installation.problem(deep=False)
    assert 0 == installation.run("--repair", monkeypatch=monkeypatch)
    assert "(repaired)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (SignatureRow.values, "its signature is not that of its support"),
        (TensorCountsRow.counts, "its counts by tensor are not those of its support"),
    ],
)
def test_what_is_derived_from_a_support_is_computed_again(
    installation: Installation, column: Any, words: str
) -> None:
    """Another model's signature or counts are found; the repair makes its own, and indexes
    follow.
    """
    with installation.database.reading() as session:
        table = column.class_
        of = {name: installation.value(ModelRow.id, name) for name in "ab"}
        values = {
            name: session.scalars(select(column).where(table.model_id == of[name])).one()
            for name in "ab"
        }
    swap = update(table).where(table.model_id == of["a"]).values({column: values["b"]})
    installation.change(swap)
    version = installation.value(ModelRow.version)
    found = installation.findings()
    assert words in str(found[0])
    assert found[0].repair is not None
    found[0].repair()
    with installation.database.reading() as session:
        now = session.scalars(select(column).where(table.model_id == of["a"])).one()
    assert values["a"] == now
    assert version < installation.value(ModelRow.version)


def test_missing_signatures_are_found_and_mended(installation: Installation) -> None:
    """Even without --deep."""
    of = SignatureRow.model_id == installation.value(ModelRow.id)
    installation.change(delete(SignatureRow).where(of))
    (finding,) = installation.findings(deep=False)
    assert "its signature is missing" in str(finding)
    assert finding.repair is not None
    finding.repair()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda row, at: delete(row).where(at), "is in others than its signature says"),
        (lambda row, at: update(row).where(at).values(key=row.key + 1), "is in others than"),
        (
            lambda row, at: insert(row).from_select(
                ["build_id", "key", "model_id"],
                select(row.build_id, row.key + 1, row.model_id).where(at),
            ),
            "entries and not",
        ),
    ],
    ids=["missing", "moved", "stray"],
)
def test_wrong_buckets_are_found_and_rebuilt(
    installation: Installation, damage: Callable[[Any, Any], Any], words: str
) -> None:
    """An entry that is missing, in another bucket, or one too many."""
    installation.rebuild()
    row = BucketEntryRow
    with installation.database.reading() as session:
        entry = session.scalars(select(row).order_by(row.build_id.desc()).limit(1)).one()
        at = (row.build_id == entry.build_id) & (row.key == entry.key)
        at &= row.model_id == entry.model_id
    installation.change(damage(row, at))
    assert [] == installation.findings(deep=False)
    with installation.buckets() as buckets:
        checked = Verification(installation.database, installation.blobs, buckets, deep=True)
        (finding,) = checked.findings()
        assert words in str(finding)
        assert finding.repair is not None
        finding.repair()


def test_wrong_buckets_in_redis_are_found(installation: Installation, single: RedisProcess) -> None:
    """A member that Redis has lost, as one of its keys may be evicted."""
    with closing(RedisServer(single.url, timeout=5)) as server:
        buckets = BucketService(installation.database, RedisBuckets(server))
        with installation.database.reading() as session:
            spaces = all_spaces(session)
        for space in spaces:
            buckets.rebuild(space)
        checked = Verification(installation.database, installation.blobs, buckets, deep=True)
        assert [] == list(checked.findings())

        def lose(client: Any) -> None:
            for name in client.scan_iter(match=f"modelkin:{{{spaces[0].id}}}*"):
                if client.type(name) == b"set":
                    client.delete(name)
                    return

        server.call(lose)
        (finding,) = checked.findings()
        assert "its LSH buckets are wrong" in str(finding)
        assert finding.repair is not None
        finding.repair()
        assert [] == list(checked.findings())
        buckets.close()


def test_buckets_that_follow_changes_all_the_while_are_named(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were not verified, which is not to be well."""
    monkeypatch.setattr("app.operations.copies.bucket_checks._PAUSE_S", 0)
    installation.rebuild()
    with installation.database.reading() as session:
        [space] = all_spaces(session, "s")
    looks = count(1)

    class Busy:
        """Buckets that a writer changes after each look."""

        def __init__(self, store: Buckets) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def state(self, space_id: int) -> BucketState | None:
            """One version behind at every other look."""
            state = self._store.state(space_id)
            assert state is not None
            return replace(state, version=state.version - next(looks) % 2)

    with installation.buckets() as buckets:
        busy = cast("Buckets", Busy(buckets.store))
        (finding,) = BucketChecks(installation.database, busy, buckets.rebuild).findings(space.id)
    assert "space 's'" in str(finding)
    assert "its LSH buckets are not verified" in str(finding)


def test_a_model_that_changes_at_each_look_is_named(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked wrong every time, so it is not passed over."""
    states, versions = Verification.states, count(1)

    def changing(self: Verification, ids: Any) -> Any:
        return [
            (of, replace(state, model=replace(state.model, version=10**6 + next(versions))))
            for of, state in states(self, ids)
        ]

    monkeypatch.setattr(Verification, "states", changing)
    found = [str(finding) for finding in installation.findings(deep=False)]
    assert len(found) > 1
    assert all("it changed each of the 5 times that it looked wrong" in line for line in found)


def test_secrets_of_another_key_are_named(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those of sources and subscriptions, each with its column; no key is made meanwhile."""
    keys = "k" * 32, "o" * 32
    secrets = {key: Secrets(parse_keys(key), None) for key in keys}
    with installation.database.writing() as session:
        tenant = session.scalars(select(SpaceRow.tenant_id).limit(1)).one()
        now = datetime.now(UTC)
        of: Any = {"tenant_id": tenant, "created_at": now, "updated_at": now}
        source: Any = {"kind": "huggingface", "space": "s", "filters": {}, "on_delete": "keep"}
        hook: Any = {"url": "http://127.0.0.1:9/", "events": [], "enabled": True, "failures": 0}
        one, other = (secrets[key].encrypt("a") for key in keys)
        session.add(SourceRow(id="source", secret=one, token=other, **of, **source))
        session.add(SubscriptionRow(id="subscription", secret=other, **of, **hook))
    try:
        monkeypatch.setenv("MODELKIN_ENCRYPTION_KEYS", ",".join(keys))
        assert 0 == installation.run(monkeypatch=monkeypatch), capsys.readouterr().out
        monkeypatch.setenv("MODELKIN_ENCRYPTION_KEYS", keys[0])
        assert 1 == installation.run(monkeypatch=monkeypatch)
        token, secret = capsys.readouterr().out.splitlines()
        assert token.startswith("table sources, row 'source': its token cannot be read: ")
        assert secret.startswith("table subscriptions, row 'subscription': its secret cannot be")
        monkeypatch.delenv("MODELKIN_ENCRYPTION_KEYS")
        assert 1 == installation.run(monkeypatch=monkeypatch)
        assert 3 == len(capsys.readouterr().out.splitlines())
        assert not [*installation.folder.parent.rglob("secret.key")]
    finally:
        installation.change(delete(SourceRow), delete(SubscriptionRow))


def test_foreign_rows_are_found(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A row of a model that does not exist goes; what goes with the model would go so, too."""
    installation.change_foreign("INSERT INTO tags (model_id, tag) VALUES (4711, 'foreign')")
    assert 1 == installation.run(monkeypatch=monkeypatch)
    assert "table tags: 1 rows name models that do not exist" in capsys.readouterr().out
    assert 0 == installation.run("--repair", monkeypatch=monkeypatch)
    with installation.database.reading() as session:
        assert {"t"} == set(session.scalars(select(TagRow.tag)))


def test_the_row_of_another_model_is_found(installation: Installation) -> None:
    """A row that names another model's file, or one outside of its space, or of another tenant."""
    key = installation.value(ModelRow.blob_key, "b")
    with installation.changed(ModelRow.blob_key, key):
        found = [str(finding) for finding in installation.findings()]
        assert any("several models name it" in line for line in found)
        assert any("is damaged" in line or "last revision" in line for line in found)
    elsewhere = installation.value(ModelRow.blob_key, space="other")
    with installation.changed(ModelRow.blob_key, elsewhere, "b"):
        found = [str(finding) for finding in installation.findings()]
        assert any("the folder of its space" in line for line in found)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (ModelRow.digest, "sha256:" + "0" * 64, "another digest than its row"),
        (ModelRow.support_size, K - 1, "bytes and not"),
        (ModelRow.blob_size, 5, "notes 5 bytes"),
        (ModelRow.version, 10**6, "is beyond"),
    ],
)
def test_a_changed_row_is_found(
    installation: Installation, column: Any, value: Any, words: str
) -> None:
    """What a row says of its file is compared with it."""
    with installation.changed(column, value, "b"):
        assert any(words in str(finding) for finding in installation.findings())


def test_a_model_that_changes_meanwhile_is_no_finding(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks wrong is read again: the model was deleted since, and its file is gone."""
    looks: list[int] = []
    states = Verification.states

    def racing(self: Verification, ids: Any) -> Any:
        read = states(self, ids)
        looks.append(len(read))
        if len(looks) == 1:
            (lost,) = (s.model for of, s in read if (of.space.name, s.model.name) == ("s", "c"))
            assert 204 == installation.app.http.delete("/v1/spaces/s/models/c").status_code
            (installation.folder / str(lost.blob_key)).unlink()
        return read

    monkeypatch.setattr(Verification, "states", racing)
    assert [] == [str(finding) for finding in installation.findings()]
    assert [7, 0] == looks
