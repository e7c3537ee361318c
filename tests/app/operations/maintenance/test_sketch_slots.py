"""Room of removed models in the sketch cache: it is given back, and no other slot suffers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.infra.db.database import Database
from app.infra.storage import holes
from app.models.index.sketch_file import SketchFile
from app.models.index.sketch_folder import SketchFolder
from app.operations.maintenance.sketch_slots import SketchSlots
from app.settings import Settings
from app.tenancy.auth.tenants import store_token
from modelkin import Sketch, Support
from tests.support.app.harness import AppHarness, open_app

M = 200_000
SKETCH = Support.from_indices(range(0, M, 9), M).sketch()


def taken(path: Path) -> int:
    """The bytes that a file takes on the disk."""
    return path.stat().st_blocks * 512


def holds(file: SketchFile, sketch: Sketch, model: int) -> bool:
    """Whether the file has the sketch of this model's content, whose id is the model's plus one."""
    ids = np.array([model], np.int64)
    return bool((file.counts(sketch, ids, ids + 1) >= 0).all())


@settings(max_examples=25)
@given(st.lists(st.sets(st.integers(0, 40), max_size=20), max_size=4))
def test_slots_of_other_models_stay(rounds: list[set[int]]) -> None:
    """Whatever is given back, in whatever order, each other model keeps its sketch, and the file
    takes no more than theirs and the blocks that they share.
    """
    with TemporaryDirectory(dir="/var/tmp") as folder:  # in memory, holes that are read fill again
        path = Path(folder, "1.sketches")
        file, gone = SketchFile(path, M), set[int]()
        for model in range(41):
            file.write(model, model + 1, SKETCH)
        for removed in rounds:
            file.give_back(np.array(sorted(removed), np.int64))
            gone |= removed
            assert [m not in gone for m in range(41)] == [holds(file, SKETCH, m) for m in range(41)]
        # A slot of 8,256 bytes touches three or four blocks; the last block holds the file's end.
        assert taken(path) <= (41 - len(gone)) * 4 * 4096 + 4096


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppHarness]:
    """A service with a space."""
    with open_app(tmp_path) as app:
        app.create_space("s", M)
        yield app


def put(app: AppHarness, *names: str) -> None:
    """Store models."""
    for number, name in enumerate(names):
        app.put_support("s", name, Support.from_indices(range(number, M, 9), M))


def delete(app: AppHarness, *names: str) -> None:
    """Delete models."""
    for name in names:
        assert 204 == app.http.delete(f"/v1/spaces/s/models/{name}").status_code


@pytest.mark.slow
def test_models_that_come_and_go_take_no_more_room(app: AppHarness) -> None:
    """A round gives back what was removed since the last one, the first one all that ever was."""
    with app.database.reading() as session:
        files = SketchFolder(app.services[Settings].sketch_dir / store_token(session))
    put(app, *"abcdefgh")
    [path] = app.services[Settings].sketch_dir.glob("*/*.sketches")
    full = taken(path)
    delete(app, *"bcdefg")
    slots = SketchSlots(app.database, files)
    slots.run_once(threading.Event())
    assert taken(path) <= full - 6 * 8192 + 4 * 4096
    for number in range(4):
        put(app, "n")
        at_most = taken(path)
        delete(app, "n")
        slots.run_once(threading.Event())
        assert taken(path) < at_most, number
    near = app.http.get("/v1/spaces/s/neighbors", params={"model": "a"}).json()
    assert ["h"] == [neighbor["model"] for neighbor in near["items"]]


def test_a_file_that_can_have_no_holes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system cannot make holes, nothing is lost and nothing raised."""
    monkeypatch.setattr(holes, "fallocate", None)
    file = SketchFile(tmp_path / "f", M)
    file.write(3, 4, SKETCH)
    file.give_back(np.array([3], np.int64))
    assert holds(file, SKETCH, 3)


def test_a_space_without_a_file_has_nothing_to_give_back(
    tmp_path: Path, database: Database
) -> None:
    """Nor has one whose file is deleted meanwhile."""
    SketchSlots(database, SketchFolder(tmp_path / "none")).run_once(threading.Event())
    file = SketchFile(tmp_path / "f", M)
    file.give_back(np.array([3], np.int64))
    assert [] == file.filled_ids().tolist()
