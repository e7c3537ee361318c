"""The folder of a finding index: files that are damaged, lost, foreign, cut, or unwritable."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.records import Changed
from app.infra import fail_points
from app.infra.deadlines import NEVER
from app.infra.errors import Unavailable
from tests.app.fingerprints.finding.made_hub import Hub, fingerprint, keys
from tests.support.servers.forkserver import CONTEXT

HELD = 300
TENANT = 7
TAIL = 8 * HELD
"""A tail of eight fingerprints is written."""
STEPS = 60
BASE = keys(np.random.default_rng(3), HELD)
"""The keys of a model whose children all others are."""


@dataclass
class AskedHub(Hub):
    """A hub that notes from which versions on it was asked."""

    since: list[int] = field(default_factory=list)

    def changed_since(self, since: int) -> Iterator[Sequence[Changed]]:
        """Note it."""
        self.since.append(since)
        return super().changed_since(since)


def advance(hub: Hub, version: int) -> Hub:
    """Take a hub to a version by changes that every process knows: puts and removals."""
    while hub.version < version:
        number = hub.version
        if number % 10 == 9:
            hub.remove(min(hub.changed))
            continue
        draw = np.random.default_rng([3, number])
        kept = BASE[draw.random(BASE.size) < 0.5]
        id_ = max(hub.changed) if number % 6 == 3 else number + 1
        hub.put(id_, fingerprint(np.union1d(kept, keys(draw, 150))))
    return hub


def hub_at(version: int) -> Hub:
    """A hub after so many changes."""
    return advance(Hub(page=5), version)


def expected(hub: Hub) -> set[int]:
    """The kin of the base: all of them."""
    return set(hub.changed)


def found(index: FindingIndex, hub: Hub) -> set[int]:
    """The candidates that the index names of the base."""
    answer = index.find_by(hub, TENANT, fingerprint(BASE), limit=100, deadline=NEVER)
    return {each.id for each in answer.candidates}


def written(folder: Path) -> FindingIndex:
    """An index that has written several segments."""
    index, hub = FindingIndex(folder, tail_entries=TAIL), Hub(page=5)
    for version in range(10, STEPS + 1, 10):
        found(index, advance(hub, version))
        index.wait()
    assert 2 <= len(list((folder / str(TENANT)).glob("*.segment")))
    return index


@pytest.fixture
def hub() -> Hub:
    """The last state."""
    return hub_at(STEPS)


def test_what_was_written_is_read_by_the_next_process(tmp_path: Path, hub: Hub) -> None:
    """It reads no more from the feed than what came after the last segment."""
    written(tmp_path).close()
    asked = AskedHub(**vars(hub))
    assert expected(hub) == found(FindingIndex(tmp_path, tail_entries=TAIL), asked)
    assert asked.since
    assert all(version > STEPS // 2 for version in asked.since)


@pytest.mark.parametrize("seed", range(12))
def test_damage_is_never_believed(tmp_path: Path, hub: Hub, seed: int) -> None:
    """Bytes that change anywhere in any file are noticed, and the index is built again."""
    written(tmp_path).close()
    draw = np.random.default_rng(seed)
    for path in (tmp_path / str(TENANT)).iterdir():
        data = bytearray(path.read_bytes())
        for place in draw.integers(0, len(data), 3) if data else ():
            data[place] ^= 1 << draw.integers(8)
        path.write_bytes(data)
    index = FindingIndex(tmp_path, tail_entries=TAIL)
    assert expected(hub) == found(index, hub)
    assert expected(hub) == found(index, hub)


@pytest.mark.parametrize("what", ["lost", "cut", "swapped", "foreign", "all lost"])
def test_files_that_are_not_its_own_are_not_read(tmp_path: Path, hub: Hub, what: str) -> None:
    """Segments that are gone, cut, in each other's place or of another tenant."""
    written(tmp_path).close()
    folder = tmp_path / str(TENANT)
    first, *_, last = sorted(folder.glob("*.segment"), key=lambda path: path.stat().st_size)
    if what == "lost":
        last.unlink()
    elif what == "cut":
        os.truncate(last, last.stat().st_size - 4096)
    elif what == "swapped":
        data = first.read_bytes()
        first.write_bytes(last.read_bytes())
        last.write_bytes(data)
    elif what == "foreign":
        other = FindingIndex(tmp_path / "other", tail_entries=TAIL)
        found(other, hub_at(STEPS - 7))
        other.wait()
        shutil.rmtree(folder)
        (tmp_path / "other" / str(TENANT)).rename(folder)
        name = next(folder.glob("*.segment"))
        name.rename(name.with_name("0123456789abcdef.segment"))
    else:
        shutil.rmtree(folder)
    assert expected(hub) == found(FindingIndex(tmp_path, tail_entries=TAIL), hub)


def test_a_file_that_is_cut_while_it_is_mapped_ends_nothing(tmp_path: Path, hub: Hub) -> None:
    """What it held is read from the database again."""
    index = written(tmp_path)
    for path in (tmp_path / str(TENANT)).glob("*.segment"):
        os.truncate(path, 4096)
    assert expected(hub) == found(index, hub)


def test_an_index_of_another_database_is_built_again(tmp_path: Path) -> None:
    """A database that was set back, and went on otherwise, has other rows at the same version."""
    index, hub = written(tmp_path), hub_at(STEPS - 20)
    while hub.version < STEPS:
        hub.put(900 + hub.version, fingerprint(keys(np.random.default_rng(hub.version), HELD)))
    assert expected(hub) >= found(index, hub)
    assert expected(hub_at(STEPS - 20)) == found(index, hub)


def test_a_compacted_feed_starts_the_index_again(tmp_path: Path, hub: Hub) -> None:
    """Removals that it has not seen are not told any more, and nobody brings them back."""
    index, ahead = written(tmp_path), hub_at(STEPS + 30)
    ahead.removed.clear()
    ahead.compacted_version = STEPS + 20
    assert expected(ahead) == found(index, ahead)
    assert expected(ahead) == found(FindingIndex(tmp_path, tail_entries=TAIL), ahead)


def test_there_is_no_time_to_build_it(tmp_path: Path, hub: Hub) -> None:
    """The request is told to come again, and the index goes on from there."""

    class Soon:
        passes = 3

        def passed(self) -> bool:
            self.passes -= 1
            return self.passes < 0

        def left(self) -> float:
            return 60.0

    index, tries = FindingIndex(tmp_path, tail_entries=TAIL), 0
    while True:
        tries += 1
        try:
            index.find_by(hub, TENANT, fingerprint(BASE), deadline=Soon())  # type: ignore[arg-type]
        except Unavailable:
            continue
        break
    assert 2 <= tries <= 4
    assert expected(hub) == found(index, hub)


# --- other processes ------------------------------------------------------------------------------


def follow(folder: Path, step: int) -> None:
    """Follow a hub from its beginning, in steps, and expect the right answer at each."""
    index, hub, last = FindingIndex(folder, tail_entries=TAIL), Hub(page=5), hub_at(STEPS)
    for version in range(step, STEPS + 1, step):
        try:
            kin = found(index, advance(hub, version))
        except Unavailable:  # another process builds it from a later state: ask in a later one
            continue
        # Another process may have brought what this transaction does not see yet, or removed it.
        later = {each.id for each in last.changed.values() if each.version > version}
        assert expected(hub) <= kin | later | set(last.removed_since(version))
        assert kin <= expected(hub)
    index.close()
    assert expected(last) == found(FindingIndex(folder, tail_entries=TAIL), last)


def run(*arguments: object, follower: Callable[..., None] = follow) -> int | None:
    """The exit code of a process that follows a hub."""
    process = CONTEXT.Process(target=follower, args=arguments)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.slow
def test_processes_share_a_folder(tmp_path: Path, hub: Hub) -> None:
    """Each answers rightly at every step while others write and merge."""
    steps = (1, 2, 3)
    processes = [CONTEXT.Process(target=follow, args=(tmp_path, step)) for step in steps]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    assert [0] * len(steps) == [each.exitcode for each in processes]
    assert expected(hub) == found(FindingIndex(tmp_path, tail_entries=TAIL), hub)


def follow_until_killed(folder: Path, point: str, at: int) -> None:
    """Follow a hub, and be killed at a fail-point."""
    os.environ["MODELKIN_FAIL_POINTS"] = f"{point}=kill@{at}"
    fail_points.arm()
    follow(folder, 3)


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["fsync", "rename", "unlink"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_killed_process_loses_nothing(tmp_path: Path, operation: str, side: str) -> None:
    """In a write or a merge: the next process answers rightly, and deletes what was half done."""
    at = {"fsync": 9, "rename": 5, "unlink": 2}[operation]
    assert -9 == run(tmp_path, f"{side}_{operation}", at, follower=follow_until_killed)
    folder = tmp_path / str(TENANT)
    assert list(folder.glob("*.segment"))
    follow(tmp_path, STEPS // 2)
    manifest = (folder / "manifest").read_text()
    assert all(path.name in manifest for path in folder.glob("*.segment"))


def follow_on_a_full_disk(folder: Path) -> None:
    """Follow a hub where no file may have more than 60 kB, and then where it may."""
    said = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("app.fingerprints.finding")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))
    index, hub = FindingIndex(folder, tail_entries=TAIL, retry_delay=0), Hub(page=5)
    for version in range(5, STEPS + 1, 5):
        assert expected(advance(hub, version)) == found(index, hub)
        index.wait()
    assert 1 == sum("cannot be written" in each for each in said), said
    assert max(path.stat().st_size for path in (folder / str(TENANT)).iterdir()) <= 60_000
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    index.run_once(threading.Event())
    index.wait()
    assert any("is written again" in each for each in said), said


def test_a_full_disk_stops_no_answer(tmp_path: Path, hub: Hub) -> None:
    """The index stays in memory, it is said once, and it is written when there is room again."""
    assert 0 == run(tmp_path, follower=follow_on_a_full_disk)
    assert expected(hub) == found(FindingIndex(tmp_path, tail_entries=TAIL), hub)
    assert list((tmp_path / str(TENANT)).glob("*.segment"))
