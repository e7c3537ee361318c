"""A service that dies at each of its fail-points loses nothing that it has acknowledged."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import numpy as np
import pytest

from app.infra import fail_points
from app.infra.fail_points import Operation
from app.setting_messages import unknown_variables
from modelkin.errors import InvalidParameter
from tests.support.app.backups import Copies
from tests.support.app.harness import open_app
from tests.support.backends import Backend
from tests.support.faults.ledger import WRITERS, check_answers, make_space
from tests.support.faults.places import Place, assert_nothing_leaks
from tests.support.fixtures import BACKENDS, Figure
from tests.support.repetitions import repetitions
from tests.support.servers.s3_server import S3
from tests.support.servers.server_process import Server
from tests.support.write_log import WriteLog, finish, start_writers

SEED = 1906
HOUSEKEEPING = "--blob-grace-seconds=0", "--maintenance-interval-seconds=0.1"
"""What is released is deleted at once, so that a service deletes files while it writes others."""
FILES: tuple[Operation, ...] = ("fsync", "rename", "commit", "unlink", "buckets", "answer")
BUCKET: tuple[Operation, ...] = ("put", "rename", "commit", "unlink", "buckets", "answer")
"""The operations of a service with a folder, and of one with a bucket: its cache is not synced."""
TIMES = {
    "fsync": (8, 60),
    "rename": (4, 30),
    "put": (12, 40),
    "commit": (20, 60),
    "unlink": (3, 20),
    "buckets": (1, 12),
    "answer": (40, 90),
}
"""At which of the times that a point is reached it kills the service: the first and the last."""
LATER = 1, 4, 16
"""A clean-up may reach a point before a write does: then it dies there so many times later."""


class Searching(threading.Thread):
    """Searches by LSH buckets, which therefore follow what is written, until it gets no answer."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = f"{url}/v1/spaces/s"

    def run(self) -> None:
        with httpx.Client(timeout=30, trust_env=False) as http:
            while True:
                try:
                    http.get(f"{self._url}/neighbors", params={"model": "w0/m0", "method": "lsh"})
                except httpx.TransportError:
                    return
                time.sleep(0.01)


def die(server: Server, write_logs: list[WriteLog], seed: int) -> None:
    """Write and search until the service dies of its fail-point, which may be at its start."""
    try:
        server.start()
    except (AssertionError, httpx.TransportError):
        assert not server.process.is_alive()
        return
    writers = start_writers(server.url, "s", write_logs, seed)
    searching = Searching(server.url)
    searching.start()
    assert -signal.SIGKILL == server.wait(), server.log.read_text()
    refused = finish(writers)
    searching.join()
    assert [] == refused


def points(
    random: np.random.Generator, operations: Sequence[Operation], first: int
) -> Iterator[tuple[str, int]]:
    """Where to die, one death after the other: all points in turn, at any of their times."""
    for number in itertools.count(first):
        turn, at = divmod(number, len(operations))
        operation = operations[at]
        side = "before" if (turn + at) % 2 else "after"
        yield f"{side}_{operation}", int(random.integers(*TIMES[operation], endpoint=True))


def written(write_logs: list[WriteLog]) -> int:
    """How many writes were acknowledged so far."""
    return sum(log.writes for log in write_logs)


def deaths_lose_nothing(
    backend: Backend, folder: Path, place: Place, drawn: Iterable[tuple[str, int]]
) -> str:
    """All that was acknowledged is there with its digest, what was not is whole or absent, the
    buckets are those of a recomputation, and a sweep leaves no support that no row names. At each
    point there is a death behind an acknowledged write. Returns what was seen.
    """
    flags = (*HOUSEKEEPING, *place.flags(folder))
    server = Server(folder, *place.flags(folder), backend=backend).start()
    make_space(server)
    assert 0 == server.stop()
    write_logs = [WriteLog() for _ in range(WRITERS)]
    deaths = 0
    for point, at in drawn:
        before = written(write_logs)
        for later in LATER:
            settings = {"MODELKIN_FAIL_POINTS": f"{point}=kill@{at * later}"}
            deaths += 1
            die(Server(folder, *flags, backend=backend, **settings), write_logs, SEED + deaths)
            with open_app(folder, backend, prepared=True, **place.settings(folder)) as app:
                check_answers(cast("httpx.Client", app.http), "s", write_logs)
            if written(write_logs) > before:
                break
        assert written(write_logs) > before, point
    assert "" == Copies(backend, folder, **place.settings(folder)).verify()
    assert_nothing_leaks(backend, folder, place)
    writes = written(write_logs)
    return f"{deaths} deaths, {writes:,} writes acknowledged, 0 lost, 0 supports left, seed {SEED}"


@pytest.mark.slow
def test_a_death_at_each_point_loses_nothing(
    backend: Backend, tmp_path: Path, figure: Figure
) -> None:
    """Of a service that keeps its supports in a folder."""
    random = np.random.default_rng([SEED, backend.name == "sqlite"])
    first = 0 if backend.name == "sqlite" else 3  # so the few are all operations, on both together
    drawn = itertools.islice(points(random, FILES, first), repetitions(240, few=3))
    figure(deaths_lose_nothing(backend, tmp_path, Place(), drawn))


@pytest.mark.parametrize("backend", BACKENDS[: repetitions(2, few=1)], indirect=True)
def test_a_death_at_each_point_loses_nothing_of_a_bucket(
    backend: Backend,
    s3: S3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Figure,
) -> None:
    """Of a service that keeps them in one: an object is there before its row."""
    for name, value in s3.variables().items():
        monkeypatch.setenv(name, value)
    random = np.random.default_rng([SEED, backend.name == "sqlite", 1])
    drawn = itertools.islice(points(random, BUCKET, 0), repetitions(240, few=1))
    figure(deaths_lose_nothing(backend, tmp_path, Place(s3.bucket()), drawn))


def test_a_stall_holds_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as is said, at the named side of the operation alone."""
    monkeypatch.setenv("MODELKIN_FAIL_POINTS", "after_rename=stall:0.05")
    fail_points.arm()
    slept: list[float] = []
    monkeypatch.setattr(fail_points, "time", SimpleNamespace(sleep=slept.append))
    for _ in range(2):
        slept.clear()
        with fail_points.around("rename"):
            assert [] == slept
        assert [0.05] == slept
    with suppress(OSError), fail_points.around("rename"):
        raise OSError
    assert [0.05] == slept  # what failed does not come to what is after it


def test_an_armed_service_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In its log; and the variable is not taken for a setting that does not exist."""
    monkeypatch.setenv("MODELKIN_FAIL_POINTS", "before_commit=kill@3,after_fsync=stall:2@7")
    fail_points.arm()
    assert ["before_commit=kill@3", "after_fsync=stall:2@7"] == [
        message.split()[1] for message in caplog.messages
    ]
    assert [] == unknown_variables()


@pytest.mark.parametrize(
    "text", ["before_lunch=kill", "before_commit", "before_commit=kill@0", "after_fsync=stall:x"]
)
def test_a_fail_point_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start is refused, with the forms that there are."""
    monkeypatch.setenv("MODELKIN_FAIL_POINTS", text)
    with pytest.raises(InvalidParameter, match=r"POINT=kill@N or POINT=stall:SECONDS"):
        fail_points.arm()


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No fail-point of a test is left armed in this process."""
    yield
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MODELKIN_FAIL_POINTS", raising=False)
        fail_points.arm()
