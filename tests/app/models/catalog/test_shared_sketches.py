"""The sketch cache around a service: shared, lost, damaged, stale, or absent.

It may cost time and sharpness, but never a right answer: each is compared with brute force.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from app.bootstrap import open_services
from app.container import Container
from app.infra.db.database import Database
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.operations.maintenance.cleanup import Cleanup
from modelkin import Client, Support
from tests.support.app.harness import settings_of
from tests.support.backends import SQLITE, Backend
from tests.support.declared_problems import checked
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import Space, random_support, ranking, related, true_neighbors
from tests.support.search_space import Stored, ask, brute, make, put, triples
from tests.support.servers.server_process import Server

M, K = 150_000, 12_000
RNG = np.random.default_rng(12)
BASE = random_support(RNG, M, K)
MODELS = {"base": BASE} | {f"m{i}": related(RNG, BASE, i / 12) for i in range(10)}
OTHERS = {name: related(RNG, BASE, share) for name, share in (("m3", 0.95), ("m8", 0.02))}
STORED = [Stored(name, "support", support) for name, support in MODELS.items()]


@pytest.fixture
def services(backend: Backend, tmp_path: Path) -> Iterator[Container]:
    """The services of a folder of the test's own."""
    with open_services(settings_of(tmp_path, backend)) as opened:
        yield opened


def files(folder: Path) -> list[Path]:
    """The files of sketches beside a service's supports."""
    return sorted((folder / "blobs-cache").glob("*/*.sketches"))


def assert_scanned(services: Container, space: SpaceRecord, models: list[Stored]) -> None:
    """A scan answers like brute force."""
    found = ask(services, space, "base", k=10, method="scan")
    assert brute(models[0], models, 10) == triples(found)
    assert not found.degraded


def fill(server: Server, space: Space, models: dict[str, Support]) -> None:
    """Store them all."""
    with Client(server.url) as client:
        assert 0 == client.put_many(space.name, models.items()).failed


def assert_right(space: Space, models: dict[str, Support]) -> None:
    """A scan over HTTP answers the true neighbours."""
    others = {name: support for name, support in models.items() if name != "base"}
    answer = space.neighbors("base", method="scan")
    assert true_neighbors(BASE, others) == ranking(answer)
    assert {"exact"} == {item["estimate"] for item in answer["items"]}


@on_one_database
@pytest.mark.slow
def test_processes_share_a_file(start: Start, tmp_path: Path) -> None:
    """One process finds the sketches of models that the other ingested.

    Replaced and deleted models are not found as they were, and a deleted space loses its file.
    """
    one, other = start(), start()
    with (
        checked(httpx.Client(base_url=one.url, timeout=60, trust_env=False)) as first,
        checked(httpx.Client(base_url=other.url, timeout=60, trust_env=False)) as second,
    ):
        mine = Space(first, M)
        theirs = Space(second, M)
        theirs.name = mine.name
        fill(one, mine, MODELS)
        (file,) = files(tmp_path)
        assert file.stat().st_blocks * 512 >= len(MODELS) * 8192
        assert_right(theirs, MODELS)
        fill(one, mine, OTHERS)
        assert_right(theirs, MODELS | OTHERS)
        assert 204 == second.delete(theirs.path("models", "m5")).status_code
        assert_right(mine, {n: s for n, s in (MODELS | OTHERS).items() if n != "m5"})
        assert 204 == second.delete(f"/v1/spaces/{mine.name}").status_code
        assert [] == files(tmp_path)


@on_one_database
def test_damaged_and_deleted_files_cost_no_answer(services: Container, tmp_path: Path) -> None:
    """With noise in place of sketches, and without a file, every answer stays right.

    The file comes back.
    """
    space = make(services, M)
    put(services, space, STORED)
    assert_scanned(services, space, STORED)
    (file,) = files(tmp_path)
    with file.open("r+b") as opened:
        opened.write(os.urandom(file.stat().st_size))
    assert_scanned(services, space, STORED)
    shutil.rmtree(tmp_path / "blobs-cache")
    assert_scanned(services, space, STORED)
    assert_scanned(services, space, STORED)
    assert [file.name] == [path.name for path in files(tmp_path)]


def test_sketches_of_a_restored_database_are_ignored(tmp_path: Path) -> None:
    """After a restore, new models on another machine take the ids of lost ones.

    The sketches of this machine belong to other contents, and are ignored.
    """
    here = settings_of(tmp_path, SQLITE)
    with open_services(here) as services:
        space = make(services, M)
        put(services, space, STORED[:1])
    shutil.copy(tmp_path / "m.db", tmp_path / "backup.db")
    with open_services(here) as services:
        put(services, space, [STORED[2], STORED[3], STORED[10]])
        assert_scanned(services, space, [STORED[0], STORED[2], STORED[3], STORED[10]])
    shutil.copy(tmp_path / "backup.db", tmp_path / "m.db")
    sent = [
        Stored(f"n{i}", "sketch", STORED[number].support) for i, number in enumerate((10, 3, 2))
    ]
    with open_services(
        settings_of(tmp_path, SQLITE, sketch_cache_dir=tmp_path / "there")
    ) as services:
        put(services, space, sent)
    with open_services(here) as services:
        for _ in range(2):
            assert_scanned(services, space, [STORED[0], *sent])


@on_one_database
def test_without_a_folder_for_sketches_queries_go_on(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that cannot be created is one line in the log, which says that queries continue."""
    (tmp_path / "in-the-way").write_text("")
    settings = settings_of(tmp_path, backend, sketch_cache_dir=tmp_path / "in-the-way")
    with open_services(settings) as services:
        space = make(services, M)
        put(services, space, STORED)
        for _ in range(3):
            assert_scanned(services, space, STORED)
    lines = [line for line in caplog.messages if "sketches" in line]
    assert 1 == len(lines), lines
    assert "queries go on without" in lines[0]


@on_one_database
def test_spaces_that_others_deleted_leave_no_file(
    backend: Backend, services: Container, tmp_path: Path
) -> None:
    """The file of a space that another machine deleted stays until the next start or clean-up.

    The file of another database in the same folder stays.
    """
    gone, later, kept = (make(services, M) for _ in range(3))
    for space in (gone, later, kept):
        put(services, space, STORED[:1])
    foreign = tmp_path / "blobs-cache" / "0123456789abcdef" / "1.sketches"
    foreign.parent.mkdir()
    foreign.touch()
    elsewhere = settings_of(tmp_path, backend, sketch_cache_dir=tmp_path / "elsewhere")
    own = {f"{space.id}.sketches" for space in (gone, later, kept)}
    for space in (gone, later):
        with open_services(elsewhere) as other, other[Database].writing() as session:
            other[SpaceService].delete(session, space)
        assert own == {path.name for path in files(tmp_path) if path != foreign}
        own.remove(f"{space.id}.sketches")
        if space is gone:
            with open_services(settings_of(tmp_path, backend)):
                assert own == {path.name for path in files(tmp_path) if path != foreign}
        else:
            services[Cleanup].run_once()
            assert own == {path.name for path in files(tmp_path) if path != foreign}
    assert foreign.exists()


@on_one_database
def test_a_damaged_support_only_degrades_a_scan(
    backend: Backend, services: Container, tmp_path: Path
) -> None:
    """Other items are exact, the damaged one is estimated by signature, and the answer says so."""
    space = make(services, M)
    put(services, space, STORED)
    before = {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()}
    twin = Stored("damaged", "support", related(np.random.default_rng(1), BASE, 0.9))
    put(services, space, [twin])
    (blob,) = {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()} - before
    blob.unlink()
    found = ask(services, space, "base", k=11, method="scan")
    models = [*STORED, Stored("damaged", "signature", twin.support)]
    assert brute(STORED[0], models, 11) == triples(found)
    assert found.degraded
