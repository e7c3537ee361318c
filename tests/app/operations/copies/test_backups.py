"""``backup`` and ``restore``: a copy of a running service is whole, and restored only whole."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from app.infra.db.database import Database
from app.infra.db.tables.catalog import SpaceRow
from app.models.spaces.repositories.spaces import all_spaces, retire_space
from app.operations.cli import verification
from app.operations.cli.copies import back_up
from app.operations.copies.manifests import (
    MANIFEST,
    SUPPORT_LIST,
    SUPPORTS,
    file_sum,
    whole_backups,
)
from modelkin import Support
from tests.support.app.backups import Copies, writing
from tests.support.app.harness import open_app
from tests.support.backends import SQLITE, Backend
from tests.support.blob_files import blob_files
from tests.support.servers.server_process import Server

M = 10_000


@pytest.fixture(scope="module")
def running(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that is backed up."""
    folder = tmp_path_factory.mktemp("running")
    server = Server(folder, "--keep-revisions=1", backend=backend).start()
    yield server
    assert server.stop() == 0


def copied(printed: str) -> tuple[int, int]:
    """How many supports a backup names, and how many of them it copied."""
    found = re.search(r"([\d,]+) supports, ([\d,]+) of them copied now", printed)
    assert found is not None, printed
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


@pytest.mark.slow
def test_a_backup_under_writers_is_whole(backend: Backend, running: Server, tmp_path: Path) -> None:
    """Each is a state that was there, with all of its supports; only what is new is copied."""
    source = Copies(backend, running.folder)
    numbers = []
    for number in range(2):
        with writing(running, 4, pause=0.01, seed=number) as done:
            while sum(done) < 25:
                time.sleep(0.01)
            numbers.append(copied(source.back_up(tmp_path / "to")))
        restored = Copies(backend, tmp_path / f"restored{number}")
        restored.put_back(tmp_path / "to")
        assert not restored.verify()
    (first, all_of_it), (second, new) = numbers
    assert 0 < first == all_of_it
    assert new < second


@pytest.mark.slow
def test_a_restored_service_has_what_was_there(
    backend: Backend, running: Server, tmp_path: Path
) -> None:
    """Models, secrets and keys: a service on the copy answers as the first one did."""
    with writing(running, 1, pause=0.01) as done:
        while sum(done) < 10:
            time.sleep(0.01)
    Copies(backend, running.folder).back_up(tmp_path / "to")
    Copies(backend, tmp_path / "restored").put_back(tmp_path / "to")
    server = Server(tmp_path / "restored", backend=backend).start()
    path = "/v1/spaces/w/models?limit=1000"
    try:
        shown = [httpx.get(s.url + path, trust_env=False).json() for s in (running, server)]
        assert shown[0] == shown[1]
        name = shown[0]["items"][0]["model"]
        put = httpx.put(
            f"{server.url}/v1/spaces/w/supports/new", json={"indices": [1]}, trust_env=False
        )
        assert 201 == put.status_code, put.text  # the counters of ids go on
        supports = [
            httpx.get(f"{s.url}/v1/spaces/w/supports/{name}", trust_env=False).content
            for s in (running, server)
        ]
        assert supports[0] == supports[1]
    finally:
        server.kill()


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one backup of a service on SQLite that has ended."""
    folder = tmp_path_factory.mktemp("stopped")
    server = Server(folder).start()
    with writing(server, 1) as done:
        while sum(done) < 10:
            time.sleep(0.01)
    assert server.stop() == 0
    Copies(SQLITE, folder).back_up(folder / "to")
    return folder / "to"


def test_buckets_of_before_are_not_trusted(
    backend: Backend, running: Server, tmp_path: Path
) -> None:
    """A restored database is older than the buckets that Redis may still have of it."""

    def epochs(folder: Path) -> set[int | None]:
        with (
            closing(Database(backend.url(folder), timeout=5)) as database,
            database.reading() as session,
        ):
            return set(session.scalars(select(SpaceRow.bucket_epoch)))

    with writing(running, 1, pause=0.01) as done:
        while sum(done) < 3:
            time.sleep(0.01)
    model = httpx.get(f"{running.url}/v1/spaces/w/models", trust_env=False).json()["items"][0]
    asked = {"model": model["model"], "method": "lsh"}
    path = f"{running.url}/v1/spaces/w/neighbors"
    httpx.get(path, params=asked, trust_env=False).raise_for_status()
    Copies(backend, running.folder).back_up(tmp_path / "to")
    Copies(backend, tmp_path / "restored").put_back(tmp_path / "to")
    assert None not in epochs(running.folder)
    assert {None} == epochs(tmp_path / "restored")


def a_support(folder: Path) -> Path:
    """The file of a support in a folder of backups."""
    line = (whole_backups(folder)[-1] / SUPPORT_LIST).read_text().splitlines()[0]
    return folder / SUPPORTS / line.split("\t")[0]


def flip(path: Path) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def sum_of_the_list_gone(folder: Path) -> None:
    """Leave the list of supports out of the manifest."""
    manifest = whole_backups(folder)[-1] / MANIFEST
    known = json.loads(manifest.read_text())
    del known["files"][SUPPORT_LIST]
    manifest.write_text(json.dumps(known))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit of a support": lambda folder: flip(a_support(folder)),
    "a cut support": lambda folder: a_support(folder).write_bytes(b"x"),
    "no support": lambda folder: a_support(folder).unlink(),
    "a bit of the database": lambda folder: flip(whole_backups(folder)[-1] / "database.db"),
    "a bit of the list": lambda folder: flip(whole_backups(folder)[-1] / SUPPORT_LIST),
    "no manifest": lambda folder: (whole_backups(folder)[-1] / MANIFEST).unlink(),
    "no sum of the list": sum_of_the_list_gone,
    "half a manifest": lambda folder: (whole_backups(folder)[-1] / MANIFEST).write_text("{"),
}


@pytest.mark.parametrize("damage", ["nothing", *DAMAGES])
def test_verify_reads_a_backup_whole(
    backed_up: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it is needed; without the settings of a service."""
    to = tmp_path / "to"
    shutil.copytree(backed_up, to)
    name = whole_backups(to)[-1].name
    key = a_support(to).relative_to(to / SUPPORTS).as_posix()
    DAMAGES.get(damage, Path.exists)(to)
    code = verification.run(["--backup", str(to)])
    printed = capsys.readouterr()
    if damage == "nothing":
        assert (0, "", True) == (code, printed.out, " 0 findings" in printed.err), printed
    elif damage == "no manifest":
        assert (1, True) == (code, "no finished backup" in printed.err), printed
    else:
        subject = f"support {key}: " if damage.endswith("support") else f"backup {name}: "
        [line] = printed.out.splitlines()
        assert (1, True) == (code, line.startswith(subject)), line
        assert str(to) in line


def test_a_support_that_rots_is_copied_again_once_deleted(
    backed_up: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the finding says to do mends every backup that names it."""
    to = tmp_path / "to"
    shutil.copytree(backed_up, to)
    source, rotten = Copies(SQLITE, backed_up.parent), a_support(to)
    flip(rotten)
    source.back_up(to)  # by its length it is there
    assert 1 == verification.run(["--backup", str(to)])
    rotten.unlink()
    source.back_up(to)
    capsys.readouterr()
    assert 0 == verification.run(["--backup", str(to)]), capsys.readouterr()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backup_is_not_restored(backed_up: Path, tmp_path: Path, damage: str) -> None:
    """It is said what is damaged, and no database is left to start on."""
    shutil.copytree(backed_up, tmp_path / "to")
    DAMAGES[damage](tmp_path / "to")
    refused = Copies(SQLITE, tmp_path / "restored").run("restore", tmp_path / "to")
    assert 1 == refused.returncode
    assert re.search("the backup is damaged|cannot be restored|no finished backup", refused.stderr)
    assert str(tmp_path / "to") in refused.stderr
    assert not (tmp_path / "restored" / "m.db").exists()


def newer(folder: Path) -> None:
    """Give the newest backup a revision of the schema that this version does not know."""
    manifest = whole_backups(folder)[-1] / MANIFEST
    manifest.write_text(re.sub(r'"revision": ".*?"', '"revision": "9999"', manifest.read_text()))


def a_table(folder: Path) -> Path:
    """The copy of the largest table of Postgres, or that of SQLite's database."""
    backup = whole_backups(folder)[-1]
    return max(
        (*backup.glob("tables/*.copy"), *backup.glob("*.db")), key=lambda p: p.stat().st_size
    )


def half_a_table(folder: Path) -> None:
    """Leave half of a table, with a sum that fits: its rows fail one by one. On SQLite, a support
    is missing.
    """
    table, manifest = a_table(folder), whole_backups(folder)[-1] / MANIFEST
    if table.suffix == ".db":
        a_support(folder).unlink()
        return
    before = file_sum(table).model_dump()
    table.write_bytes(table.read_bytes()[: table.stat().st_size // 2])
    known, name = json.loads(manifest.read_text()), f"tables/{table.name}"
    assert before == known["files"][name]
    known["files"][name] = file_sum(table).model_dump()
    manifest.write_text(json.dumps(known))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: flip(a_table(folder)), "the backup is damaged"),
        (newer, "of a newer version"),
        (half_a_table, "cannot be"),
    ],
)
def test_a_restoration_that_fails_leaves_no_database(
    backend: Backend,
    running: Server,
    tmp_path: Path,
    damage: Callable[[Path], object],
    words: str,
) -> None:
    """Nothing can start on half of a copy, and the next restoration finds nothing there."""
    with writing(running, 1, pause=0.01) as done:
        while sum(done) < 10:
            time.sleep(0.01)
    Copies(backend, running.folder).back_up(tmp_path / "to")
    shutil.copytree(tmp_path / "to", tmp_path / "damaged")
    damage(tmp_path / "damaged")
    restored = Copies(backend, tmp_path / "restored")
    refused = restored.run("restore", tmp_path / "damaged")
    assert (1, True) == (refused.returncode, words in refused.stderr), refused.stderr
    shutil.rmtree(tmp_path / "restored" / "blobs", ignore_errors=True)  # what a support leaves
    restored.put_back(tmp_path / "to")
    assert not restored.verify()


def test_nothing_is_restored_over_something(backed_up: Path, tmp_path: Path) -> None:
    """A folder that is not empty is refused, whatever is in it, and stays as it is."""
    for kept in ("m.db", "blobs/x"):
        target = tmp_path / kept.replace("/", "-")
        (target / kept).parent.mkdir(parents=True)
        (target / kept).write_text("kept")
        refused = Copies(SQLITE, target).run("restore", backed_up)
        assert (1, True) == (refused.returncode, "is not empty" in refused.stderr), refused.stderr
        assert ["kept"] == [p.read_text() for p in target.rglob("*") if p.is_file()]


def test_a_fresh_disk_is_empty(backed_up: Path, tmp_path: Path) -> None:
    """``lost+found`` is there before anything is stored on an ext4 volume."""
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    Copies(SQLITE, tmp_path / "volume").put_back(backed_up)


def test_a_database_with_tables_is_refused(
    backend: Backend, running: Server, tmp_path: Path
) -> None:
    """Also on Postgres, where no folder shows it."""
    source = Copies(backend, running.folder)
    source.back_up(tmp_path / "to")
    refused = source.run("restore", tmp_path / "to")
    assert 1 == refused.returncode
    assert re.search("has tables of a service|is not empty", refused.stderr)


@pytest.mark.slow
def test_as_many_backups_stay_as_are_kept(backed_up: Path, tmp_path: Path) -> None:
    """Older ones go, with the supports that only they named and what was unfinished."""
    server = Server(tmp_path).start()
    copies, to = Copies(SQLITE, tmp_path), tmp_path / "to"
    try:
        httpx.post(f"{server.url}/v1/spaces", json={"name": "w", "num_parameters": 10})
        for number in range(3):
            path = f"{server.url}/v1/spaces/w/supports/only"
            httpx.delete(path.replace("supports", "models"))
            httpx.put(path, json={"indices": [number]}).raise_for_status()
            (to / "backups" / "00000000T000000.000000Z").mkdir(parents=True, exist_ok=True)
            copies.back_up(to, "--keep=2")
    finally:
        server.kill()
    manifests = [json.loads((b / MANIFEST).read_text()) for b in whole_backups(to)]
    assert [1, 1] == [manifest["supports"] for manifest in manifests]
    assert 2 == len([path for path in (to / SUPPORTS).rglob("*") if path.is_file()])
    assert 2 == len([*(to / "backups").iterdir()])
    Copies(SQLITE, tmp_path / "r").put_back(to, f"--at={manifests[0]['made_at']}")
    other = Copies(SQLITE, backed_up.parent).run("backup", to)
    assert (1, True) == (other.returncode, "another installation" in other.stderr), other.stderr
    unknown = Copies(SQLITE, tmp_path / "u").run("restore", to, "--at=2020")
    assert (1, True) == (unknown.returncode, "no finished backup 2020" in unknown.stderr)


@pytest.mark.parametrize("keep", ["0", "-1", "many", "1.5"])
def test_how_many_backups_to_keep_is_a_number(
    keep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another value is refused in words that say what is wanted."""
    with pytest.raises(SystemExit) as left:
        back_up([str(tmp_path / "to"), f"--keep={keep}"])
    assert (2, False) == (left.value.code, (tmp_path / "to").exists())
    assert f"a number of 1 or more, not '{keep}'" in capsys.readouterr().err


def test_a_generated_key_is_copied_beside_others(backed_up: Path, tmp_path: Path) -> None:
    """Secrets of before ``MODELKIN_ENCRYPTION_KEYS`` was set open after a restoration, too."""
    shutil.copytree(backed_up.parent, tmp_path / "here")
    key = tmp_path / "here" / "secret.key"
    key.write_text("generated")
    source = Copies(SQLITE, tmp_path / "here", encryption_keys="k" * 32)
    source.back_up(tmp_path / "new")
    restored = Copies(SQLITE, tmp_path / "restored", encryption_keys="k" * 32)
    restored.put_back(tmp_path / "new")
    assert "generated" == (tmp_path / "restored" / "secret.key").read_text()


@pytest.mark.slow
def test_a_support_that_is_missing_is_named(tmp_path: Path) -> None:
    """The backup is finished without it; making, verifying and restoring it each fail aloud."""
    server = Server(tmp_path).start()
    copies, to = Copies(SQLITE, tmp_path), tmp_path / "to"
    try:
        httpx.post(f"{server.url}/v1/spaces", json={"name": "w", "num_parameters": 10})
        put = f"{server.url}/v1/spaces/w/supports/a"
        httpx.put(put, json={"indices": [1]}).raise_for_status()
        copies.back_up(to)
        httpx.put(put, json={"indices": [2]}).raise_for_status()
    finally:
        server.kill()
    known = {path.name for path in (to / SUPPORTS).rglob("*")}
    [new] = [p for p in (tmp_path / "blobs").glob("*/*/*/*") if p.name not in known]
    new.unlink()
    failed = copies.run("backup", to)
    assert (1, True) == (failed.returncode, new.name in failed.stderr), failed.stderr
    assert 2 == len(whole_backups(to))
    verified = copies.run("verify", "--backup", to)
    assert (1, True) == (verified.returncode, new.name in verified.stdout), verified.stdout
    restored = Copies(SQLITE, tmp_path / "restored")
    lacking = restored.run("restore", to)
    assert (1, True) == (lacking.returncode, "missing when it was made: 1;" in lacking.stdout)
    assert "model 'a'" in restored.verify()


def test_a_database_that_cannot_be_read_is_named(backed_up: Path, tmp_path: Path) -> None:
    """It is copied page by page, damaged or not, so it shows when its supports are listed."""
    shutil.copytree(backed_up.parent, tmp_path / "here")
    with closing(sqlite3.connect(tmp_path / "here" / "m.db")) as database:
        pages = "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'models'"
        roots = [root for (root,) in database.execute(pages)]
        [size] = database.execute("PRAGMA page_size").fetchone()
    with (tmp_path / "here" / "m.db").open("r+b") as file:
        for root in roots:
            file.seek((root - 1) * size)
            file.write(b"\xff" * size)
    failed = Copies(SQLITE, tmp_path / "here").run("backup", tmp_path / "new")
    assert (1, True) == (failed.returncode, "cannot be read" in failed.stderr), failed.stderr
    assert not whole_backups(tmp_path / "new")


def blank(path: Path) -> None:
    """Put in place of the first character one that no list has."""
    path.write_bytes(b"\xff" + path.read_bytes()[1:])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (SUPPORT_LIST, flip),
        (SUPPORT_LIST, blank),
        (SUPPORT_LIST, Path.unlink),
        (MANIFEST, lambda manifest: sum_of_the_list_gone(manifest.parents[2])),
        (MANIFEST, blank),
        (MANIFEST, Path.unlink),
    ],
)
def test_a_list_that_is_damaged_saves_no_copy(
    backed_up: Path, tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    """The next backup copies every support once more, is whole, and deletes none."""
    to = tmp_path / "to"
    shutil.copytree(backed_up, to)
    stray = to / SUPPORTS / "stray"
    stray.touch()
    damage(whole_backups(to)[-1] / name)
    named, new = copied(Copies(SQLITE, backed_up.parent).back_up(to))
    assert 0 < named == new
    # without a manifest the folder counts for nothing; with a damaged one its supports are unknown
    assert stray.exists() == (len(whole_backups(to)) == 2)
    Copies(SQLITE, tmp_path / "restored").put_back(to)


@pytest.mark.slow
def test_a_deleted_space_needs_no_supports(backend: Backend, tmp_path: Path) -> None:
    """Those of a large one may be gone before the rows that name them."""
    with open_app(tmp_path, backend) as app:
        for name in ("kept", "gone"):
            app.create_space(name, M)
            app.put_support(name, "m", Support.from_indices([1, 5], M))
        with app.database.writing() as session:
            [gone] = all_spaces(session, "gone")
            retire_space(session, gone)
        [folder] = (tmp_path / "blobs").glob(f"*/{gone.id}")
        shutil.rmtree(folder)
        copies = Copies(backend, tmp_path)
        copies.back_up(tmp_path / "to")
        assert "" == copies.verify()
    restored = Copies(backend, tmp_path / "restored")
    restored.put_back(tmp_path / "to")
    assert "" == restored.verify()
    assert 1 == len(blob_files(tmp_path / "restored" / "blobs"))
