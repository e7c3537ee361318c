"""Syncs of checkpoints beyond the window: equal results, little disk, no lost work."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.hubs.ingestion.files import checkpoint_fetcher, ranged_files
from app.hubs.ingestion.files.downloads import Downloads
from app.hubs.ingestion.files.resumption import Resumption
from app.settings import Settings
from modelkin.checkpoints import open_checkpoint
from modelkin.checkpoints.one_pass import OnePass
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.models.checkpoints import (
    Tensors,
    delta_support,
    random_tensors,
    safetensors,
    sister_of,
    weight_support,
)
from tests.support.servers.fake_huggingface import Handler, Hub

BLOCK, WINDOW = 64 << 10, 512 << 10
SHAPES: dict[str, tuple[int, ...]] = {f"layers.{layer}.weight": (300, 256) for layer in range(4)}
INDEX = "model.safetensors.index.json"
CARD = {"base_model": "org/base"}
BASE = random_tensors(1, SHAPES)
MATRIX = 4 * 300 * 256


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that the checkpoints do not fit into."""
    monkeypatch.setattr(ranged_files, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(ranged_files, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(checkpoint_fetcher, "WHOLE_BYTES", WINDOW)
    monkeypatch.setattr(ranged_files, "LOOK_BYTES", 1 << 10)
    monkeypatch.setattr("modelkin.checkpoints.one_pass.PART_SIZE", 10_000)


def tuned(seed: int) -> Tensors:
    """A fine-tune of the base."""
    drift = random_tensors(seed, SHAPES)
    return {name: BASE[name] + np.float32(0.1) * drift[name] ** 3 for name in SHAPES}


def in_two(tensors: Tensors) -> dict[str, bytes]:
    """A checkpoint in two shards, the first half of the layers in the first."""
    names = sorted(tensors)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    files = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    index = {name: file for file, half in zip(files, halves, strict=True) for name in half}
    shards = {
        file: safetensors({name: tensors[name] for name in half})
        for file, half in zip(files, halves, strict=True)
    }
    return shards | {INDEX: json.dumps({"weight_map": index}).encode()}


def push(hub: Hub) -> None:
    hub.push("org/base", {"model.safetensors": safetensors(BASE)})
    hub.push("org/tuned", in_two(tuned(2)), card=CARD)


def synced(app: AppHarness, hub: Hub, name: str = "org/tuned") -> dict[str, Any]:
    """What a sync answers."""
    job = app.hubs.sync_model(app.hubs.follow(hub.url), name)
    assert job.result is not None, job.error
    return dict(job.result)


def ranges_of(hub: Hub, ranges: list[tuple[int, int]]) -> None:
    """Have the ranges noted that are asked for."""

    def note(request: Handler) -> bool:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        ranges.append((int(found[1]), int(found[2])) if found else (0, 1 << 62))
        return False

    hub.on_cdn = note


def disk_of(app: AppHarness, hub: Hub) -> list[int]:
    """Have the bytes noted that downloads take of the disk, holes not counted, at each range."""
    taken, folder, before = list[int](), app.services[Settings].checkpoint_dir, hub.on_cdn

    def note(request: Handler) -> bool:
        sparse = folder.rglob("*.safetensors")
        taken.append(sum(512 * path.stat().st_blocks for path in sparse))
        return before(request)

    hub.on_cdn = note
    return taken


def require_same(app: AppHarness, outcome: dict[str, Any]) -> None:
    """Both supports are those of the tensors in memory."""
    model, sister = tuned(2), sister_of("kin", "org/base")
    assert ("kin", sister) == (outcome["space"], outcome["delta"]["space"])
    assert weight_support(model) == app.hubs.support("org/tuned")
    assert delta_support(model, BASE) == app.hubs.support("org/tuned", sister)


def test_a_large_checkpoint_is_fetched_once_as_it_is_read(hub: Hub, app: AppHarness) -> None:
    """Weights, differences, digests and lines come from one pass over both, in a window of the disk
    that holds a matrix until its lines are known.
    """
    push(hub)
    ranges: list[tuple[int, int]] = []
    ranges_of(hub, ranges)
    taken = disk_of(app, hub)
    require_same(app, synced(app, hub))
    most = WINDOW // 2 + MATRIX + 5 * BLOCK  # both its ends, a block that comes, and headers
    assert WINDOW // 2 <= max(taken) <= most
    longest = max(last + 1 - first for first, last in ranges)
    assert longest <= BLOCK
    total = sum(last + 1 - first for first, last in ranges)
    size = 2 * sum(each.nbytes for each in BASE.values())
    assert size <= total <= 1.2 * size
    assert [] == [*app.services[Settings].checkpoint_dir.rglob("*.npz")]


def test_a_killed_sync_goes_on_at_its_shard(hub: Hub, app: AppHarness) -> None:
    """The next attempt reads the shards that are left alone, and stores the same."""
    push(hub)
    asked: list[str] = []

    def note(request: Handler) -> bool:
        asked.append(request.path)
        return False

    def fail_late(request: Handler) -> bool:
        asked.append(request.path)
        late = sum("model-00002" in path for path in asked) > 12  # its header, looks, some blocks
        if late:
            request.say(503)
        return late

    hub.on_cdn = fail_late
    source = app.hubs.follow(hub.url)
    first = app.hubs.sync_model(source, "org/tuned")
    assert first.result is None
    asked.clear()
    hub.on_cdn = note
    again = app.hubs.sync_model(source, "org/tuned")
    assert again.result is not None, again.error
    require_same(app, dict(again.result))
    of_first = [path for path in asked if "model-00001" in path]
    assert len(of_first) <= 5  # its header, and a look into each tensor


@pytest.mark.parametrize("late", [True, False])
def test_a_time_limit_costs_no_shard(
    hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """A sync that is stopped after a shard goes on later; one that has read none has failed."""
    push(hub)
    over = list[bool]()

    def note(request: Handler) -> bool:
        if f"model-0000{1 + late}" in request.path and len(over) < 12:
            over.append(True)
        return False

    def clock() -> float:
        return time.monotonic() + 5 * 3600 * (len(over) == 12)

    hub.on_cdn = note
    monkeypatch.setattr("app.hubs.clients.http.time", SimpleNamespace(monotonic=clock))
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/tuned")
    assert job.error is not None, job.result
    expected = ("queued", "hub_unavailable") if late else ("failed", "hub_too_slow")
    assert expected == (job.state, job.error["code"])


def test_a_hub_without_ranges_sends_whole_files(hub: Hub, app: AppHarness) -> None:
    """Which are downloaded as smaller ones are."""
    push(hub)

    def ignore(request: Handler) -> bool:
        data = hub.blobs[request.path.partition("?")[0].rpartition("/")[2]]
        request.say(200, data)
        return True

    hub.on_cdn = ignore
    require_same(app, synced(app, hub))


def test_a_base_of_other_bytes_has_no_differences(hub: Hub, app: AppHarness) -> None:
    """The model's weights are stored all the same, as where files are downloaded whole."""
    push(hub)
    [(_, files)] = hub.repos["org/base"].commits
    data = files["model.safetensors"]
    digest = hashlib.sha256(data).hexdigest()
    hub.blobs[digest] = data[:-4] + b"\0\0\0\0"
    outcome = synced(app, hub)
    assert weight_support(tuned(2)) == app.hubs.support("org/tuned")
    assert "space" not in outcome["delta"]
    assert f"with the SHA-256 {digest}, what it sends" in outcome["delta"]["reason"]


def test_a_component_that_was_read_is_not_read_again(hub: Hub, app: AppHarness) -> None:
    """A pipeline is stored as one, and its largest component comes first: that is kept until the
    others are read, too.
    """
    small = random_tensors(5, {"v.weight": (700, 256)})
    listed: dict[str, Any] = {"_class_name": "P", "_diffusers_version": "0.35.0"}
    listed |= {name: ["diffusers", "M"] for name in ("unet", "vae")}
    file = "diffusion_pytorch_model.safetensors"
    parts = {f"unet/{file}": safetensors(BASE), f"vae/{file}": safetensors(small)}
    hub.push("org/p", {"model_index.json": json.dumps(listed).encode(), **parts})
    asked = list[str]()

    def fail_late(request: Handler) -> bool:
        asked.append(request.path)
        late = sum("vae" in path for path in asked) > 6
        if late:
            request.say(503)
        return late

    def note(request: Handler) -> bool:
        asked.append(request.path)
        return False

    hub.on_cdn = fail_late
    source = app.hubs.follow(hub.url)
    assert app.hubs.sync_model(source, "org/p").result is None
    asked.clear()
    hub.on_cdn = note
    again = app.hubs.sync_model(source, "org/p")
    assert again.result is not None, again.error
    assert weight_support(BASE) == app.hubs.support("org/p/unet")
    assert sum("unet" in path for path in asked) <= 10  # its header, and a look into each tensor
    assert [] == [*app.services[Settings].checkpoint_dir.rglob("*.npz")]


def test_a_space_that_is_made_meanwhile_costs_nothing(hub: Hub, tmp_path: Path) -> None:
    """Another model of the layout comes first; what was read counts, and is not read again."""
    push(hub)
    hub.push("org/other", in_two(tuned(3)))
    with open_hub_app(tmp_path, hub_timeout_seconds=60.0) as app:
        require_one_reading(hub, app)


def require_one_reading(hub: Hub, app: AppHarness) -> None:
    """Sync a model, and another one meanwhile, which makes the space; count the bytes."""
    source, ranges, came = app.hubs.follow(hub.url), list[tuple[int, int]](), list[bool]()

    def overtake(request: Handler) -> bool:
        first, last = map(int, re.findall(r"\d+", request.headers["Range"]))
        ranges.append((first, last))
        if len(ranges) == 40 and not came:  # while the model is read
            other = app.hubs.sync_model(source, "org/other")
            came.append(other.result is not None and other.result["space_created"])
            ranges.clear()
        return False

    hub.on_cdn = overtake
    job = app.hubs.sync_model(source, "org/tuned")
    assert job.result is not None, job.error
    assert [True] == came
    assert not job.result["space_created"]
    require_same(app, dict(job.result))
    total = sum(last + 1 - first for first, last in ranges)
    assert total <= 2 * sum(each.nbytes for each in BASE.values())


def test_syncs_that_share_their_findings(tmp_path: Path) -> None:
    """Two sources may follow one model: whichever ends first, the other one goes on. Where the disk
    is full nothing is kept, and the sync goes on.
    """
    (tmp_path / "m.safetensors").write_bytes(safetensors(BASE))
    model = open_checkpoint(tmp_path / "m.safetensors")

    def reading() -> OnePass:
        one = OnePass()
        one.select(model.tensors, None, 100)
        return one

    downloads = Downloads(tmp_path / "downloads")
    with downloads.directory() as one, downloads.directory() as two:
        path = one.beside("kept.npz")
        first, second = Resumption(path, one), Resumption(path, two)
        begun = reading()
        begun.read()
        first.keep(begun)
        second.keep(reading())
        first.keep(begun)
        second.restore(again := reading())
        assert begun.finished == again.finished == {tmp_path / "m.safetensors"}
        first.forget()
        second.keep(begun)
        assert (second.kept, True) == (True, path.is_file())
        second.forget()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=256 << 20))
            second.keep(begun)
        assert not path.exists()
