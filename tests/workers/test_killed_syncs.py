"""A worker dies in the middle of a sync that reads by ranges: the next one goes on at its shard."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from pathlib import Path

import numpy as np

from app.settings import Settings
from tests.support.app.harness import open_hub_app
from tests.support.jobs.deployment import LEASE_S, TIMEOUT_S, Process
from tests.support.jobs.ranges_main import BLOCK
from tests.support.models.checkpoints import (
    Tensors,
    delta_support,
    random_tensors,
    safetensors,
    sister_of,
    weight_support,
)
from tests.support.servers.fake_huggingface import Handler, Hub
from tests.support.servers.waiting import wait_for

SHAPES: dict[str, tuple[int, ...]] = {f"layers.{layer}.weight": (300, 256) for layer in range(8)}
SHARDS = 4
MODULE = "tests.support.jobs.ranges_main"
BASE = random_tensors(1, SHAPES)
TUNED = {
    name: BASE[name] + np.float32(0.1) * drift**3
    for name, drift in random_tensors(2, SHAPES).items()
}


def in_shards(tensors: Tensors, name: str) -> dict[str, bytes]:
    """A checkpoint in shards of two layers, in their order."""
    names, files, held = sorted(tensors), dict[str, bytes](), dict[str, str]()
    for at in range(SHARDS):
        path = f"{name}-{at + 1:05}-of-{SHARDS:05}.safetensors"
        part = {each: tensors[each] for each in names[2 * at : 2 * at + 2]}
        files[path] = safetensors(part)
        held |= dict.fromkeys(part, path)
    return files | {f"{name}.safetensors.index.json": json.dumps({"weight_map": held}).encode()}


def test_kill_9_in_the_middle_of_a_sync(hub: Hub, tmp_path: Path) -> None:
    """Of the files that were read, the model's and its base's, the next worker asks for headers and
    looks alone; it stores what an undisturbed sync does.
    """
    hub.push("org/base", in_shards(BASE, "base"))
    hub.push("org/tuned", in_shards(TUNED, "model"), card={"base_model": "org/base"})
    asked, held, ended = Counter[str](), threading.Event(), threading.Event()

    def note(request: Handler) -> bool:
        path = request.path.partition("?signed=")[2]
        first, last = map(int, re.findall(r"\d+", request.headers["Range"]))
        asked[path] += last + 1 - first
        in_third = path == "model-00003-of-00004.safetensors" and first == 3 * BLOCK
        if in_third and not held.is_set():
            held.set()
            ended.wait(TIMEOUT_S)  # its worker is killed meanwhile
        return False

    hub.on_cdn = note
    with open_hub_app(tmp_path) as app:
        job = app.hubs.enqueue(app.hubs.follow(hub.url), "org/tuned")
        settings = app.services[Settings]
        flags = [
            f"--database-url={settings.database_url}",
            f"--blob-url={settings.blob_url}",
            f"--job-lease-seconds={LEASE_S:g}",
            "--egress-allow=127.0.0.1",
        ]
        first = Process(tmp_path / "first.log", MODULE, *flags)
        assert held.wait(TIMEOUT_S)
        first.kill()
        asked.clear()
        second = Process(tmp_path / "second.log", MODULE, *flags)
        wait_for(lambda: app.worker.job(job.id).finished)
        ended.set()
        assert 0 == second.stop()
        done = app.worker.job(job.id)
        assert ("succeeded", 2) == (done.state, done.attempts), done.error
        assert weight_support(TUNED) == app.hubs.support("org/tuned")
        assert delta_support(TUNED, BASE) == app.hubs.support(
            "org/tuned", sister_of("kin", "org/base")
        )
        assert [] == [*settings.checkpoint_dir.rglob("*.npz")]
    for name in ("model", "base"):
        sizes = [asked[f"{name}-{at:05}-of-{SHARDS:05}.safetensors"] for at in (1, 2, 3, 4)]
        whole = 2 * 4 * 300 * 256
        assert max(sizes[:2]) <= 3 * BLOCK < whole <= min(sizes[2:])
