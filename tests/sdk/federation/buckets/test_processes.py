"""Parties as processes of their own, that share a folder or a bucket and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from modelkin.sharing import BucketMerge, BucketStore, FolderStore, Store
from tests.support.federations.meeting import NAMES, SECRET
from tests.support.federations.sharing import fedavg, updates
from tests.support.servers.s3_proxy import FAULTS, s3_proxy
from tests.support.servers.s3_server import S3

M = 3000
PROGRAM = """
import sys
import numpy as np
from modelkin.sharing import BucketMerge, BucketStore, FolderStore

where, name, folder = sys.argv[1:]
store = BucketStore(where) if "://" in where else FolderStore(where)
merge = BucketMerge(store, "july", group_secret=bytes(range(32)))
path = f"{folder}/{name[-1]}"
values = np.load(f"{path}.npy")
merged = merge.join(name, values, examples=len(name), state=f"{path}.merge", timeout=200)
np.save(f"{path}-merged.npy", merged.values)
"""

Start = Callable[[str], "subprocess.Popen[bytes]"]


@contextmanager
def programs(where: str, folder: Path, more: Mapping[str, str]) -> Iterator[Start]:
    """A function that starts a party; those that run at the end of the block are killed."""
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM, where, name, str(folder)]
        running.append(subprocess.Popen(command, env={**os.environ, **more}))
        return running[-1]

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.wait()


def begin(store: Store, folder: Path) -> np.ndarray:
    """Create the merge, write the members' values, and return their mean."""
    vectors = updates(4, M)
    for name, vector in zip(NAMES, vectors, strict=True):
        np.save(folder / f"{name[-1]}.npy", vector)
    merge = BucketMerge(store, "july", group_secret=SECRET)
    merge.create(M, NAMES, leader="org/a", aggregators=3)
    return fedavg(vectors, [5.0] * 4)


def require(wanted: np.ndarray, folder: Path) -> None:
    """Require that all parties have the same average, and that it is this one."""
    found = [np.load(folder / f"{name[-1]}-merged.npy") for name in NAMES]
    assert all(np.abs(values - wanted).max() < 1e-8 for values in found)
    assert 1 == len({values.tobytes() for values in found})


@pytest.mark.slow
def test_killed_parties_come_back(tmp_path: Path) -> None:
    """Two of them, the leader too, at any moment after they joined: the average is of all."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    for folder in (shared, own):
        folder.mkdir()
    wanted = begin(FolderStore(shared), own)
    with programs(str(shared), own, {}) as start:
        killed = [start(name) for name in NAMES[:2]]
        while len([*shared.glob("july/*/joined/?")]) < 2:
            time.sleep(0.01)
        for process in killed:
            process.send_signal(signal.SIGKILL)
            process.wait()
        ends = [start(name).wait for name in NAMES]
        assert [0, 0, 0, 0] == [end(timeout=200) for end in ends]
    require(wanted, own)
    assert not [*own.glob("*.merge")]


@pytest.mark.slow
def test_a_bucket_that_fails_now_and_then(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request in four is refused, cut, lost, asked twice or slow: the average is of all."""
    with s3_proxy(s3.url) as proxy:
        for name, value in s3.variables(proxy.url).items():
            monkeypatch.setenv(name, value)
        where = s3.bucket()
        wanted = begin(BucketStore(where), tmp_path)
        random = np.random.default_rng(0)
        proxy.fault = lambda *_: (
            FAULTS[random.integers(len(FAULTS))] if random.random() < 0.25 else ""
        )
        with programs(where, tmp_path, s3.variables(proxy.url)) as start:
            ends = [start(name).wait for name in NAMES]
            assert [0, 0, 0, 0] == [end(timeout=200) for end in ends]
    require(wanted, tmp_path)
