"""What is left of merges: files of cells, orphans, and merges whose deadline no job has ended."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update

from app.infra.db.released_blobs import find_released
from app.infra.db.tables.merges import MergeRow
from app.infra.errors import Unavailable
from app.infra.storage.file_blobs import FileBlobs
from app.merges.service import MergeService
from app.operations.maintenance.blob_cleanup import BlobCleanup, orphans
from app.tenancy.auth.tenants import store_token
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.federations.merging import HubMerge
from tests.support.http_space import Space

M = 1000


@pytest.fixture
def app(tmp_path: Path, backend: Backend) -> Iterator[AppHarness]:
    """A service of its own."""
    with open_app(tmp_path, backend) as opened:
        yield opened


def merge_of(app: AppHarness, **wanted: Any) -> HubMerge:
    values = np.linspace(-1, 1, M).astype(np.float32)
    http: Any = app.http  # a client of the same interface, within the process
    space = Space(http, M)
    return HubMerge(space, dict.fromkeys(("a", "b", "c"), values), aggregators=1, **wanted)


def change(app: AppHarness, **columns: Any) -> None:
    with app.database.writing() as session:
        session.execute(update(MergeRow).values(**columns))


def cells(folder: Path) -> set[Path]:
    return {
        path for path in folder.rglob("*") if path.is_file() and b"MKSC" == path.read_bytes()[:4]
    }


def sweep(app: AppHarness, folder: Path) -> None:
    """Delete what is released, as a clean-up does after the time of grace."""
    with app.database.reading() as session:
        blobs = FileBlobs(folder / "blobs", store_token(session))
    BlobCleanup(app.database, blobs, 0.0).run_once()


@pytest.mark.slow
def test_cells_go_a_day_after_the_end(app: AppHarness, tmp_path: Path) -> None:
    """Not before, and the merge itself stays to be shown.

    Their files stay for the time of grace, for copies of the database that name them.
    """
    merge = merge_of(app)
    merge.join_all()
    merge.send_all()
    merge.aggregate_all()
    service = app.services[MergeService]
    assert 4 == len(cells(tmp_path))
    change(app, ended_at=datetime.now(UTC) - timedelta(hours=23))
    service.clean_up()
    assert 4 == len(cells(tmp_path))
    change(app, ended_at=datetime.now(UTC) - timedelta(hours=25))
    service.clean_up()
    assert "done" == merge.state
    assert 404 == merge.parties["a"].get("results/0/0").status_code
    assert 4 == len(cells(tmp_path))
    sweep(app, tmp_path)
    assert not cells(tmp_path)


@pytest.mark.slow
def test_a_deadline_that_no_job_ended_is_kept(app: AppHarness) -> None:
    """The periodic task ends what is a minute late, with its job or without."""
    merge = merge_of(app)
    change(app, due_at=datetime.now(UTC) - timedelta(minutes=2))
    app.services[MergeService].clean_up()
    assert "0 members joined" in merge.show()["failure"]


@pytest.mark.slow
def test_a_merge_that_cannot_be_read_stops_no_other(
    app: AppHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Its failure is logged, and the merges after it are ended all the same."""
    merge_of(app, name="broken")
    sound = merge_of(app, name="sound")
    now = datetime.now(UTC)
    change(app, due_at=now - timedelta(minutes=2))
    with app.database.writing() as session:
        broken = update(MergeRow).where(MergeRow.name == "broken")
        session.execute(broken.values(plan={}, due_at=now - timedelta(minutes=3)))
    app.services[MergeService].clean_up()
    assert "cannot be cleaned up" in caplog.text
    assert "failed" == sound.state


@pytest.mark.slow
def test_a_clean_up_ends_where_the_database_is_away(
    tmp_path: Path, backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """All late merges would meet the same fault: it is raised once, and logged with no merge."""
    with open_app(tmp_path, backend, database_timeout_seconds=1) as app:
        late = [merge_of(app, name=name) for name in ("one", "two", "three")]
        change(app, due_at=datetime.now(UTC) - timedelta(minutes=2))
        clean_up = app.services[MergeService].clean_up
        with app.database.writing() as session, ThreadPoolExecutor(1) as thread:
            session.execute(update(MergeRow).values(revision=MergeRow.revision))
            with pytest.raises(Unavailable):
                thread.submit(clean_up).result()
        assert "cannot be cleaned up" not in caplog.text
        clean_up()
        assert ["failed"] * 3 == [merge.state for merge in late]


@pytest.mark.slow
def test_cells_of_open_merges_are_not_orphans(app: AppHarness, tmp_path: Path) -> None:
    """A sweep knows the files of cells; those of a merge that was deleted are released."""
    merge = merge_of(app)
    merge.join_all()
    merge.parties["a"].send()
    (cell,) = cells(tmp_path)
    key = cell.relative_to(tmp_path / "blobs").as_posix()
    with app.database.reading() as session:
        assert set() == orphans(session, [key])
    merge.http.delete(merge.path)
    with app.database.reading() as session:
        assert {key} == find_released(session, [key])
    sweep(app, tmp_path)
    assert not cells(tmp_path)
    with app.database.reading() as session:
        assert {key} == orphans(session, [key])
