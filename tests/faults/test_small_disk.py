"""A disk of 24 MB that fills up under a service: writes are refused, and nothing is half written.

The disk is a tmpfs of its own; where none may be mounted the tests are skipped.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from app.infra.db.database import Database
from app.infra.errors import StorageFull
from modelkin import Support
from tests.support.app.backups import Copies
from tests.support.backends import Backend
from tests.support.blob_files import blob_keys, named_keys, released_keys
from tests.support.declared_problems import checked
from tests.support.fixtures import Figure
from tests.support.http_space import Space, assert_problem
from tests.support.repetitions import repetitions
from tests.support.servers.server_process import Server

SEED = 1906
DISK_MB = 24
FIRST_ROOM = 8 << 20
"""What the disk has beside the ballast at first; later there is less, as there are revisions."""
MODELS = 30
"""Of which two revisions each fit on the disk."""
M, K = 2_000_000, 150_000
"""A support of some 190 kB."""


@pytest.fixture
def disk() -> Iterator[Path]:
    """The folder of a small disk; not below pytest's, which a run that was killed would leave
    mounted, and which a later run could not delete.
    """
    if shutil.which("mount") is None:
        pytest.skip("no tmpfs may be mounted here: there is no mount")
    with tempfile.TemporaryDirectory(prefix="modelkin-disk-") as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", folder],
            capture_output=True,
            text=True,
        )
        if mounted.returncode:
            pytest.skip(f"no tmpfs may be mounted here: {mounted.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def service(backend: Backend, disk: Path) -> Iterator[Server]:
    """A service whose supports, and whose database where that is a file, are on it."""
    # A cached support has its place on the disk, deleted or not.
    cache = "--support-cache-bytes=1000000"
    flags = "--blob-grace-seconds=0", "--maintenance-interval-seconds=0.2", "--keep-revisions=1"
    running = Server(disk, *flags, cache, backend=backend).start()
    yield running
    running.kill()


def drawn(rng: np.random.Generator) -> Support:
    """A support of about K indices."""
    return Support.from_indices(np.flatnonzero(rng.random(M) < K / M), M)


def test_a_commit_that_finds_no_room_is_rolled_back(disk: Path) -> None:
    """What was prepared for the change is taken back: it is certain that no row names it."""
    ran: list[str] = []
    with closing(Database(f"sqlite:///{disk}/small.db", timeout=5)) as database:
        with database.writing() as session:
            session.execute(text("CREATE TABLE filled (held BLOB)"))
        (disk / "ballast").write_bytes(bytes(shutil.disk_usage(disk).free - (64 << 10)))

        def fill() -> None:
            with database.writing() as session:
                session.after_commit(lambda: ran.append("committed"))
                session.after_rollback(lambda: ran.append("rolled back"))
                session.execute(text("INSERT INTO filled VALUES (zeroblob(200000))"))
                ran.append("executed")

        with pytest.raises(StorageFull):
            fill()
        assert ["executed", "rolled back"] == ran
        (disk / "ballast").unlink()
        with database.writing() as session:
            assert 0 == session.scalar(text("SELECT count(*) FROM filled"))


@pytest.mark.slow
def test_a_full_disk_refuses_and_loses_nothing(
    backend: Backend, disk: Path, service: Server, figure: Figure
) -> None:
    """Once it is full each write is a 507 that leaves no file; what was acknowledged is read with
    its digest; and with room again writes are stored.
    """
    rng = np.random.default_rng(SEED)
    digests: dict[str, str] = {}
    refused = 0
    with checked(httpx.Client(base_url=service.url, timeout=60, trust_env=False)) as http:
        space = Space(http, M)
        for round_ in range(repetitions(10, few=1)):
            ballast = disk / "ballast"
            room = (1 + round_ % 3) << 20 if round_ else FIRST_ROOM
            ballast.write_bytes(bytes(shutil.disk_usage(disk).free - room))
            end = refused + repetitions(20, few=4)
            for number in itertools.count():
                name, support = f"m{number % MODELS}", drawn(rng)
                answer = space.put_bytes(
                    name, support.to_bytes(), "application/vnd.modelkin.support"
                )
                if answer.is_success:
                    digests[name] = support.digest
                    continue
                refused += 1
                assert_problem(answer, 507, "storage_full")
                if refused == end:
                    break
            for name, digest in digests.items():
                got = Support.from_bytes(http.get(space.path("supports", name)).content)
                assert digest == got.digest, name
            assert 200 == http.get("/readyz").status_code
            assert "exact" == space.neighbors("m0", method="exact")["method"]
            ballast.unlink()
            support = drawn(rng)
            space.put("m0", support)
            digests["m0"] = support.digest
        assert len(digests) == space.show()["models"]
    assert 0 == service.stop()
    assert "Traceback" not in service.log.read_text()
    with closing(Database(service.database_url, timeout=5)) as database:
        kept = blob_keys(service.blobs) - released_keys(database)
        assert named_keys(database) == kept
    assert "" == Copies(backend, disk).verify()
    figure(f"{len(digests)} models, {refused} writes refused, 0 lost, 0 half written, seed {SEED}")
