"""The sketch file of a space: a slot counts only if it is whole and of the right content."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.models.index import parts, sketch_file
from app.models.index.sketch_file import SketchFile
from app.models.index.sketch_folder import SketchFolder
from modelkin import Sketch, Support
from modelkin.core.packed import PackedSupport
from tests.support.servers import forkserver

M = 200_000
SMALL = 5000
SUPPORTS = {
    m: [
        Support.from_indices(np.sort(np.random.default_rng(i).choice(m, m // 12, False)), m)
        for i in range(6)
    ]
    for m in (M, SMALL)
}
SKETCHES = {m: [support.sketch() for support in supports] for m, supports in SUPPORTS.items()}
QUERY = SKETCHES[M][0]


def counts(file: SketchFile, query: Sketch, *asked: tuple[int, int]) -> list[tuple[int, int]]:
    """The counts that a file returns for models with these contents."""
    ids, contents = np.array(asked, np.int64).reshape(-1, 2).T
    return [(s, m) for s, m in file.counts(query, ids, contents).tolist()]


def known(query: Sketch, sketch: Sketch) -> tuple[int, int]:
    """The expected counts of a sketch in the file."""
    return query.shared(sketch), sketch.members


UNKNOWN = (-1, -1)


@pytest.mark.parametrize("m", [M, SMALL])
def test_what_is_written_is_counted(tmp_path: Path, m: int) -> None:
    """Shared and own members of any sketches, in any order, in large spaces and in small ones."""
    file, sketches = SketchFile(tmp_path / "f", m), SKETCHES[m]
    for model, sketch in enumerate(sketches):
        file.write(700 * model, 100 + model, sketch)
    asked = [(3500, 105), (0, 100), (700, 101), (0, 100)]
    expected = [known(sketches[1], sketches[c - 100]) for _, c in asked]
    assert expected == counts(file, sketches[1], *asked)
    assert expected == counts(SketchFile(tmp_path / "f", m), sketches[1], *asked)
    assert [] == counts(file, sketches[1])


@pytest.mark.parametrize("coarse", [False, True])
def test_parts_count_as_the_whole_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coarse: bool
) -> None:
    """Many models, some of them unknown, are divided among threads."""
    file, sketches = SketchFile(tmp_path / "f", M), SKETCHES[M]
    for model in range(0, 60, 2):
        file.write(model, 100 + model, sketches[model % len(sketches)])
    ids = np.arange(57)
    whole = file.counts(QUERY, ids, ids + 100, coarse=coarse)
    monkeypatch.setattr(sketch_file, "MIN_PART", 4)
    monkeypatch.setattr(parts, "cores", lambda: 5)
    assert np.array_equal(whole, file.counts(QUERY, ids, ids + 100, coarse=coarse))
    assert 29 == np.count_nonzero(whole[:, 0] >= 0)


def test_a_packed_support_is_kept_as_its_sketch(tmp_path: Path) -> None:
    """The service and a client compute the same sketch of a support."""
    file = SketchFile(tmp_path / "f", M)
    file.write_packed(3, 7, PackedSupport.pack(SUPPORTS[M][1]))
    assert [known(QUERY, SKETCHES[M][1])] == counts(file, QUERY, (3, 7))


def test_another_content_is_not_known(tmp_path: Path) -> None:
    """The file has no slot for an old content, an unwritten model, or a model behind its end.

    Nor has it one for a model without content.
    """
    file = SketchFile(tmp_path / "f", M)
    assert [UNKNOWN] == counts(file, QUERY, (5, 9))
    file.write(5, 9, SKETCHES[M][1])
    asked = (5, 8), (4, 9), (6, 9), (10**6, 9), (5, 0), (4, 0)
    assert [UNKNOWN] * 6 == counts(file, QUERY, *asked)
    file.write(5, 10, SKETCHES[M][2])
    assert [UNKNOWN, known(QUERY, SKETCHES[M][2])] == counts(file, QUERY, (5, 9), (5, 10))


# Writes of contents to models through either of two objects, and damage in between.
STEPS = st.lists(
    st.tuples(st.sampled_from("abd"), st.integers(0, 300), st.integers(1, 5)), max_size=25
)


@settings(max_examples=40)
@given(steps=STEPS)
def test_a_file_is_a_dict_that_may_forget(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    """Two processes write and one damages: a read finds the last write, or nothing."""
    path = tmp_path_factory.mktemp("f") / "f"
    files = {name: SketchFile(path, SMALL) for name in "ab"}
    written: dict[int, int] = {}
    for who, model, content in steps:
        if who in files:
            files[who].write(model, content, SKETCHES[SMALL][content])
            written[model] = content
        elif path.exists():
            data = bytearray(path.read_bytes())
            place = model * 640 % len(data)
            data[place : place + 640] = os.urandom(len(data[place : place + 640]))
            with path.open("r+b") as opened:
                opened.write(data)
    query = SKETCHES[SMALL][0]
    for file in files.values():
        for model, content in written.items():
            right = known(query, SKETCHES[SMALL][content])
            assert counts(file, query, (model, content))[0] in {right, UNKNOWN}
            others = [(model, c) for c in range(1, 6) if c != content]
            assert [UNKNOWN] * 4 == counts(file, query, *others)
    if not any(who == "d" for who, _, _ in steps):
        asked = list(written.items())
        expected = [known(query, SKETCHES[SMALL][content]) for _, content in asked]
        assert expected == counts(files["a"], query, *asked)


def test_a_sketch_of_another_space_is_ignored(tmp_path: Path) -> None:
    """A file under another space's name has slots of another length, or other contents."""
    SketchFile(tmp_path / "f", SMALL).write(3, 7, SKETCHES[SMALL][1])
    assert [UNKNOWN] * 40 == counts(
        SketchFile(tmp_path / "f", M), QUERY, *((i, 7) for i in range(40))
    )


def write_second(path: Path) -> None:
    """Write the second sketch of two models."""
    file = SketchFile(path, SMALL)
    for model in (3, 900):
        file.write(model, 2, SKETCHES[SMALL][2])


def test_another_process_sees_what_is_written(tmp_path: Path) -> None:
    """A mapping made before a write shows the slot that another process wrote."""
    path = tmp_path / "f"
    mine = SketchFile(path, SMALL)
    mine.write(3, 1, SKETCHES[SMALL][1])
    query = SKETCHES[SMALL][0]
    assert [known(query, SKETCHES[SMALL][1]), UNKNOWN] == counts(mine, query, (3, 1), (900, 2))
    other = forkserver.CONTEXT.Process(target=write_second, args=(path,))
    other.start()
    other.join()
    assert 0 == other.exitcode
    expected = [UNKNOWN] + [known(query, SKETCHES[SMALL][2])] * 2
    assert expected == counts(mine, query, (3, 1), (3, 2), (900, 2))


def test_a_deleted_file_is_made_anew(tmp_path: Path) -> None:
    """A running service notices that its file was deleted; the next write creates a new one."""
    path = tmp_path / "f"
    files = [SketchFile(path, M) for _ in range(2)]
    files[0].write(3, 7, SKETCHES[M][1])
    assert [known(QUERY, SKETCHES[M][1])] == counts(files[1], QUERY, (3, 7))
    path.unlink()
    assert [UNKNOWN] == counts(files[1], QUERY, (3, 7))
    files[0].write(4, 8, SKETCHES[M][2])
    assert [UNKNOWN, known(QUERY, SKETCHES[M][2])] == counts(files[1], QUERY, (3, 7), (4, 8))


def test_growing_keeps_what_others_wrote(tmp_path: Path) -> None:
    """A process extends the file by a zero byte that all slots have, so races lose nothing."""
    path = tmp_path / "f"
    one, other = SketchFile(path, SMALL), SketchFile(path, SMALL)
    one.write(1023, 1, SKETCHES[SMALL][1])  # the last slot of a file of 1,024
    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDWR)
    other.grow(descriptor, 700)
    os.pwrite(descriptor, b"\0", size - 1)
    os.close(descriptor)
    assert size == path.stat().st_size
    query = SKETCHES[SMALL][0]
    assert [known(query, SKETCHES[SMALL][1])] == counts(other, query, (1023, 1))


def test_a_file_takes_the_room_of_what_it_holds(tmp_path: Path) -> None:
    """Ids may be far apart: the file is sparse between them."""
    file = SketchFile(tmp_path / "f", M)
    for model in (10, 10**6):
        file.write(model, 5, SKETCHES[M][1])
    taken = (tmp_path / "f").stat()
    assert taken.st_size > 2**20 * 8192
    assert taken.st_blocks * 512 < 100_000


def test_without_room_on_the_disk_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One log line reports it; a minute later a write is tried again, and one reports success."""
    files, clock = SketchFolder(tmp_path / "token"), [0.0]
    monkeypatch.setattr("app.models.index.sketch_folder.time.monotonic", lambda: clock[0])
    file = files.of(1, M)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level(logging.INFO), monkeypatch.context() as broken:
        broken.setattr("app.models.index.sketch_file.os.pwrite", full)
        for model in range(3):
            file.write(model, 7, SKETCHES[M][1])
        clock[0] = 61.0
        file.write(0, 7, SKETCHES[M][1])
    assert ["No space left" in line for line in caplog.messages] == [True]
    file.write(1, 7, SKETCHES[M][1])
    assert [UNKNOWN] * 2 == counts(file, QUERY, (0, 7), (1, 7))
    clock[0] = 130.0
    with caplog.at_level(logging.INFO):
        file.write(2, 7, SKETCHES[M][1])
    assert "are kept in" in caplog.messages[-1]
    assert 2 == len(caplog.messages)
    assert [known(QUERY, SKETCHES[M][1])] == counts(file, QUERY, (2, 7))


def test_a_folder_that_cannot_be_made_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why the folder cannot be created, and the service continues."""
    (tmp_path / "cache").write_text("a file")
    files = SketchFolder(tmp_path / "cache" / "token")
    files.sweep([1])
    files.of(1, M).write(1, 7, SKETCHES[M][1])
    assert [UNKNOWN] == counts(files.of(1, M), QUERY, (1, 7))
    files.forget(1)
    assert any("cannot be kept" in line for line in caplog.messages)


def test_a_part_that_was_written_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk may take half a slot; readers ignore it."""
    files, pwrite = SketchFolder(tmp_path), os.pwrite
    monkeypatch.setattr(
        "app.models.index.sketch_file.os.pwrite", lambda fd, data, at: pwrite(fd, data[:4000], at)
    )
    files.of(1, M).write(1, 7, SKETCHES[M][1])
    assert [UNKNOWN] == counts(files.of(1, M), QUERY, (1, 7))
    assert ["No space left" in line for line in caplog.messages] == [True]


def test_spaces_come_and_go(tmp_path: Path) -> None:
    """The file of a deleted space is deleted, at once or at the next start.

    Files of other spaces, and foreign files, stay.
    """
    files = SketchFolder(tmp_path)
    for space in (1, 2, 3):
        files.of(space, M).write(1, 7, SKETCHES[M][space])
    (tmp_path / "README").touch()
    files.forget(2)
    files.forget(77)
    assert ["1.sketches", "3.sketches", "README"] == sorted(p.name for p in tmp_path.iterdir())
    (tmp_path / "other.sketches").touch()
    SketchFolder(tmp_path).sweep([3])
    (tmp_path / "other.sketches").unlink()
    assert ["3.sketches", "README"] == sorted(p.name for p in tmp_path.iterdir())
    assert [known(QUERY, SKETCHES[M][3])] == counts(files.of(3, M), QUERY, (1, 7))
    assert files.of(3, M) is files.of(3, M)


def test_few_files_are_open(tmp_path: Path) -> None:
    """Only the most recently used spaces hold descriptors; other files are opened again."""
    files = SketchFolder(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for space in range(100):
        files.of(space, SMALL).write(1, 7, SKETCHES[SMALL][1])
        counts(files.of(space, SMALL), SKETCHES[SMALL][0], (1, 7))
    assert len(os.listdir("/proc/self/fd")) <= before + 2 * 64
    expected = [known(SKETCHES[SMALL][0], SKETCHES[SMALL][1])]
    first = files.of(0, SMALL)
    assert expected == counts(first, SKETCHES[SMALL][0], (1, 7))
    files.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert [UNKNOWN] == counts(first, SKETCHES[SMALL][0], (1, 7))
