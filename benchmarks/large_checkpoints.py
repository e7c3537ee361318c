"""The disk and the memory of a sync, of a small and of a large checkpoint and their bases.

    .venv/bin/python -m benchmarks.large_checkpoints 8 140

The numbers are gigabytes of a model; its base has as many. A hub on loopback makes the bytes as
they are asked for, and declares their SHA-256. Each sync has a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import numpy as np

from app.settings import Settings
from tests.support.app.harness import open_hub_app
from tests.support.servers.fake_huggingface import Handler

SHAPE: Final = (8192, 28672)
TENSOR_BYTES: Final = 2 * SHAPE[0] * SHAPE[1]
SHARD_TENSORS: Final = 10
TILE_VALUES: Final = 28672 * 1024
"""Values after which the weights repeat themselves."""
COMMIT: Final = 40 * "a"
INDEX: Final = "model.safetensors.index.json"


@dataclass(frozen=True)
class Shard:
    """A file of BF16 tensors, few of whose bytes are kept.

    Attributes:
        tile: the values that are repeated, twice.
    """

    names: list[str]
    tile: bytes

    @cached_property
    def header(self) -> bytes:
        """What stands before the values."""
        tensors = {
            name: {
                "dtype": "BF16",
                "shape": SHAPE,
                "data_offsets": [at * TENSOR_BYTES, (at + 1) * TENSOR_BYTES],
            }
            for at, name in enumerate(self.names)
        }
        text = json.dumps(tensors).encode()
        return len(text).to_bytes(8, "little") + text

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return len(self.header) + len(self.names) * TENSOR_BYTES

    def part(self, begin: int, end: int) -> bytes | memoryview:
        """Its bytes from one place to another, at most as many as a tile has."""
        if begin < len(self.header):
            head = self.header[begin:end]
            return head + self.tile[: end - begin - len(head)]
        at = (begin - len(self.header)) % (len(self.tile) // 2)
        return memoryview(self.tile)[at : at + end - begin]

    @cached_property
    def sha256(self) -> str:
        """The digest that the hub declares."""
        digest = hashlib.sha256(self.header)
        tile = memoryview(self.tile)[: len(self.tile) // 2]
        for _ in range((self.size - len(self.header)) // len(tile)):
            digest.update(tile)
        return digest.hexdigest()


@dataclass(frozen=True)
class Repository:
    """A model of shards, and the base that it declares."""

    files: dict[str, Shard]
    index: bytes
    base: str | None

    @classmethod
    def of(cls, gigabytes: float, tile: bytes, base: str | None) -> Repository:
        """A repository of so many bytes, a tensor more or less."""
        names = [f"layers.{i:03}.weight" for i in range(round(gigabytes * 1e9 / TENSOR_BYTES))]
        groups = [names[at : at + SHARD_TENSORS] for at in range(0, len(names), SHARD_TENSORS)]
        files = {
            f"model-{at:05}-of-{len(groups):05}.safetensors": Shard(group, tile)
            for at, group in enumerate(groups, 1)
        }
        held = {name: path for path, shard in files.items() for name in shard.names}
        return cls(files, json.dumps({"weight_map": held}).encode(), base)

    @property
    def description(self) -> dict[str, object]:
        """What the hub says of it."""
        siblings: list[dict[str, object]] = [
            {
                "rfilename": path,
                "size": shard.size,
                "lfs": {"sha256": shard.sha256, "size": shard.size, "pointerSize": 134},
            }
            for path, shard in self.files.items()
        ]
        siblings.append({"rfilename": INDEX, "size": len(self.index)})
        card = {} if self.base is None else {"base_model": self.base}
        return {"sha": COMMIT, "cardData": card, "siblings": siblings, "private": False}


class _Hub(Handler):
    """Answers of the model ``org/tuned`` and of its base."""

    repositories: dict[str, Repository]
    sent = 0

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        path = urlsplit(self.path).path
        if match := re.fullmatch(r"/api/models/(org/\w+)(/revision/\w+)?", path):
            about = {"id": match[1], "modelId": match[1]}
            self.say_json(about | self.repositories[match[1]].description)
        elif match := re.fullmatch(rf"/(org/\w+)/resolve/\w+/{re.escape(INDEX)}", path):
            self.say(200, self.repositories[match[1]].index, X_Repo_Commit=COMMIT)
        elif match := re.fullmatch(r"/(org/\w+)/resolve/\w+/(model-.+)", path):
            self.send_part(self.repositories[match[1]].files[match[2]])
        else:
            self.refuse(404, "EntryNotFound", "Entry not found")

    def send_part(self, shard: Shard) -> None:
        """Answer with the range that is asked for."""
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        assert asked is not None, self.path
        first, end = int(asked[1]), min(int(asked[2]) + 1, shard.size)
        type(self).sent += end - first
        where = f"bytes {first}-{end - 1}/{shard.size}"
        self.say(206, shard.part(first, end), Content_Range=where, X_Repo_Commit=COMMIT)


def main(sizes: list[float]) -> None:
    """Print a row for each size."""
    draw = np.random.default_rng(0)
    weights = (0.02 * draw.standard_normal(TILE_VALUES)).astype("f4")
    changes = (0.001 * draw.standard_normal(TILE_VALUES)).astype("f4")
    tuned, base = (_tile(values) for values in (weights + changes, weights))
    for size in sizes:
        _Hub.repositories = {
            "org/tuned": Repository.of(size, tuned, "org/base"),
            "org/base": Repository.of(size, base, None),
        }
        for repository in _Hub.repositories.values():
            _ = repository.description  # its digests take time
        _Hub.sent = 0
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        begin = time.monotonic()
        found = subprocess.run(
            [sys.executable, "-m", __spec__.name, f"http://127.0.0.1:{server.server_port}"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        minutes = (time.monotonic() - begin) / 60
        server.shutdown()
        memory, disk = map(int, found.stdout.split()[-2:])
        held = sum(s.size for r in _Hub.repositories.values() for s in r.files.values())
        print(
            f"| 2 x {held / 2e9:.1f} GB | {disk / 1e9:.2f} GB | {memory / 1e9:.2f} GB | "
            f"{_Hub.sent / held:.3f} | {minutes:.1f} min |",
            flush=True,
        )


def sync(url: str) -> None:
    """Sync the model, and print the most memory and the most disk that this took, in bytes."""
    with tempfile.TemporaryDirectory() as folder, open_hub_app(Path(folder)) as app:
        most, ended = [0], threading.Event()
        watching = threading.Thread(
            target=_watch, args=(app.services[Settings].checkpoint_dir, most, ended)
        )
        watching.start()
        job = app.hubs.sync_model(app.hubs.follow(url), "org/tuned")
        ended.set()
        watching.join()
    if job.result is None or job.result["delta"]["space"] is None:
        sys.exit(f"the sync failed: {job.error or job.result}")
    status = Path("/proc/self/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    print(int(peak[1]) * 1024, most[0])


def _watch(folder: Path, most: list[int], ended: threading.Event) -> None:
    """Note the most bytes of the disk that a folder takes, holes not counted."""
    while not ended.wait(0.1):
        taken = 0
        for path in folder.rglob("*"):
            try:
                taken += 512 * path.stat().st_blocks
            except FileNotFoundError:  # it has been deleted since
                continue
        most[0] = max(most[0], taken)


def _tile(values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> bytes:
    return 2 * (values.view("u4") >> 16).astype("<u2").tobytes()


if __name__ == "__main__":
    if sys.argv[1].startswith("http://"):
        sync(sys.argv[1])
    else:
        main([float(size) for size in sys.argv[1:]])
