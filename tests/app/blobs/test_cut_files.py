"""Files that are cut under a running service: it lives, and says no wrong number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest

from app.infra.errors import Unavailable
from app.infra.storage.guarded_maps import GuardedMap, intact_maps
from tests.support.blob_files import blob_files
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import SUPPORT, random_support, related

SIZE = 1 << 20
M, K, MODELS = 2_000_000, 200_000, 6


@pytest.mark.parametrize(
    "case", ["read_a_cut_map", pytest.param("read_in_threads", marks=pytest.mark.slow)]
)
def test_a_map_outlives_a_cut(tmp_path: Path, case: str) -> None:
    """A process of its own reads what files have lost as zeros, and lives."""
    code = (
        "import sys; from pathlib import Path; from tests.app.blobs import test_cut_files as cases"
    )
    command = [sys.executable, "-c", f"{code}; cases.{case}(Path(sys.argv[1]))", str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (0, "", "") == (child.returncode, child.stdout, child.stderr)


def read_a_cut_map(folder: Path) -> None:
    """What its file has lost reads as zeros, the map says so, and a new map has all again."""
    path = folder / "file"
    path.write_bytes(b"\1" * SIZE)
    with path.open("r+b") as file:
        before, other = (GuardedMap(file.fileno(), SIZE) for _ in range(2))
        with intact_maps():
            assert SIZE == np.frombuffer(before.view, np.uint8).sum()
        file.truncate(SIZE // 2)
        with pytest.raises(Unavailable, match="cut while it was read"), intact_maps():
            assert SIZE // 2 == np.frombuffer(before.view, np.uint8).sum()
        file.truncate(0)
        file.write(b"\2" * SIZE)
        file.flush()
        assert (True, False) == (before.lost, other.lost)
        assert 2 * SIZE == np.frombuffer(other.view, np.uint8).sum()
        assert 2 * SIZE == np.frombuffer(GuardedMap(file.fileno(), SIZE).view, np.uint8).sum()


def read_in_threads(folder: Path) -> None:
    """Threads outlive cuts while they hold the interpreter's lock, and while they do not."""
    path, ended = folder / "file", threading.Event()
    path.write_bytes(b"\1" * SIZE)

    def read(descriptor: int) -> int:
        lost = 0
        while not ended.is_set():
            try:
                mapped = GuardedMap(descriptor, SIZE)
            except OSError:  # it is cut just now
                continue
            for _ in range(4):
                np.frombuffer(mapped.view, np.uint8).sum()
                bytes(mapped.view[::4096])
            lost += mapped.lost
        return lost

    with path.open("r+b") as file, ThreadPoolExecutor(3) as threads:
        reads = [threads.submit(read, file.fileno()) for _ in range(3)]
        for _ in range(200):
            file.truncate(4096)
            time.sleep(0.001)
            file.truncate(SIZE)
            time.sleep(0.001)
        ended.set()
        assert all(each.result() >= 0 for each in reads)


IN_A_CHILD: Final = """
import gc, mmap, os, signal, sys, time
from app.infra.storage.guarded_maps import GuardedMap
file = open(sys.argv[1], "r+b")
own, other = GuardedMap(file.fileno(), 1 << 20), mmap.mmap(file.fileno(), 1 << 20)
"""
GARBAGE: Final = """
class Ring:
    pass
gc.set_threshold(1)
for _ in range(300):
    file.truncate(1 << 20)
    maps = [GuardedMap(file.fileno(), 1 << 20) for _ in range(3)]
    ring = Ring()
    ring.ring, ring.maps = ring, maps
    kept = GuardedMap(file.fileno(), 1 << 20)
    del ring, maps
    file.truncate(0)
    assert bytes(64) == bytes(kept.view[:64])
"""
FAULTHANDLER: Final = """
import faulthandler
faulthandler.enable()
later = GuardedMap(file.fileno(), 1 << 20)
faulthandler.disable()
latest = GuardedMap(file.fileno(), 1 << 20)
file.truncate(0)
assert bytes(192) == bytes(own.view[:64]) + bytes(later.view[:64]) + bytes(latest.view[:64])
"""
FORK: Final = """
file.truncate(0)
if not os.fork():
    os._exit(sum(own.view[:64]))
assert (0, False) == (os.wait()[1], own.lost)
"""


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (GARBAGE, 0),
        (FORK, 0),
        (FAULTHANDLER, 0),
        ("file.truncate(0); other[0]", -signal.SIGBUS),
        ("os.kill(os.getpid(), signal.SIGBUS); time.sleep(5)", -signal.SIGBUS),
    ],
    ids=["garbage", "fork", "faulthandler", "another map", "sent"],
)
def test_the_handler_mends_its_own_maps_alone(tmp_path: Path, code: str, ends: int) -> None:
    """Whatever garbage is collected, also in a fork; any other SIGBUS ends the process."""
    path = tmp_path / "file"
    path.write_bytes(b"\1" * SIZE)
    command = [sys.executable, "-c", IN_A_CHILD + code, str(path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ends, "", "") == (child.returncode, child.stdout, child.stderr)


@contextmanager
def cut(paths: list[Path]) -> Iterator[None]:
    """Cut files in place again and again while the block runs, and restore them in place."""
    kept, ended = {path: path.read_bytes() for path in paths}, threading.Event()

    def run() -> None:
        while not ended.is_set():
            for path, data in kept.items():
                os.truncate(path, len(data) // 2)
                time.sleep(0.002)
                os.truncate(path, 0)
                time.sleep(0.002)
                os.truncate(path, len(data))

    cutter = threading.Thread(target=run)
    cutter.start()
    try:
        yield
    finally:
        ended.set()
        cutter.join()
        for path, data in kept.items():
            path.write_bytes(data)


def answers(http: httpx.Client) -> dict[str, httpx.Response]:
    """Neighbours, an overlap, a matrix, a graph, and the tensors of a sample."""
    names = [f"m{number}" for number in range(MODELS)]
    return {
        "neighbors": http.get("/v1/spaces/s/neighbors", params={"model": "m0", "method": "scan"}),
        "overlap": http.get("/v1/spaces/s/overlap", params={"a": "m1", "b": "m2"}),
        "matrix": http.post("/v1/spaces/s/similarity", json={"models": names}),
        "graph": http.get("/v1/spaces/s/graph"),
        "tensors": http.get("/v1/spaces/s/tensors"),
    }


def exact(answer: dict[str, Any]) -> set[tuple[Any, ...]]:
    """What an answer says exactly; tensors say it of the pairs of supports that could be read."""
    rows = answer.get("edges", answer.get("items", [answer]))
    if "pairs" in answer:
        return {(answer["pairs"], *map(str, row.values())) for row in rows}
    return {
        (row.get("source"), row.get("target"), row.get("model"), str(row["similarity"]))
        for row in rows
        if row.get("estimate", "exact") == "exact"
    }


def is_whole(answer: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether an answer is of as many pairs as the right one, where it counts any."""
    found: bool = answer.get("pairs") == right.get("pairs")
    return found


@on_one_database
def test_a_service_outlives_cuts(start: Start) -> None:
    """With the settings that it has by default; restored in place, all is as before."""
    server, random = start(), np.random.default_rng(7)
    base = random_support(random, M, K)
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
        layout = [{"name": name, "shape": [M // 2]} for name in ("a", "b")]
        space = {"name": "s", "num_parameters": M, "layout": layout}
        assert http.post("/v1/spaces", json=space).is_success
        for number in range(MODELS):
            body = related(random, base, number / MODELS).to_bytes()
            path, head = f"/v1/spaces/s/supports/m{number}", {"Content-Type": SUPPORT}
            assert http.put(path, content=body, headers=head).is_success
        right = {question: answer.json() for question, answer in answers(http).items()}
        sketches = [*server.blobs.parent.rglob("*.sketches")]
        assert (MODELS, 1) == (len(blob_files(server.blobs)), len(sketches))
        with cut([*blob_files(server.blobs), *sketches]):
            for _ in range(10):
                for question, answer in answers(http).items():
                    assert answer.status_code in {200, 503}, answer.text
                    if answer.status_code == 200 and is_whole(answer.json(), right[question]):
                        assert exact(answer.json()) <= exact(right[question]), question
        assert 200 == http.get("/readyz").status_code
        assert right == {question: answer.json() for question, answer in answers(http).items()}
