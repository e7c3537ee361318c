"""Checkpoints that are missing, damaged, quantised or too large: the error says why."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from tests.app.hubs.conftest import GOOD, refused
from tests.app.hubs.ingestion.conftest import gptq
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.models.checkpoints import random_tensors, safetensors, sharded
from tests.support.servers.fake_huggingface import Handler, Hub


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"pytorch_model.bin": b"pickled"}, "'pytorch_model.bin' is a pickle"),
        ({"model.onnx": b"compiled"}, "'model.onnx' is ONNX"),
        ({}, "holds no safetensors or GGUF file"),
    ],
    ids=["pickle", "onnx", "card alone"],
)
def test_no_file_that_is_read(
    hub: Hub, app: AppHarness, files: dict[str, bytes], says: str
) -> None:
    """Pickles are never read: the model is left out with the reason, which is no failure of the
    source, and is counted there.
    """
    hub.push("org/a", files)
    source = app.hubs.follow(hub.url)
    job = app.hubs.sync_model(source, "org/a")
    assert job.result is not None, job.error
    assert ("succeeded", "ignored", []) == (job.state, job.result["outcome"], hub.downloads)
    assert says in job.result["reason"]
    assert app.hubs.source(source.id).last_error is None
    assert 1 == app.hubs.show({"id": source.id})["fingerprint_counts"]["unread"]
    hub.push("org/a", {"model.safetensors": GOOD})
    assert "stored" == (app.hubs.sync_model(source, "org/a").result or {})["outcome"]
    assert 0 == app.hubs.show({"id": source.id})["fingerprint_counts"]["unread"]


def test_a_stored_model_that_becomes_a_pickle(hub: Hub, app: AppHarness) -> None:
    """It fails, since what is stored is no longer what the hub has."""
    hub.push("org/a", {"model.safetensors": GOOD})
    source = app.hubs.follow(hub.url)
    assert "succeeded" == app.hubs.sync_model(source, "org/a").state
    hub.push("org/a", {"pytorch_model.bin": b"pickled"})
    job = app.hubs.sync_model(source, "org/a")
    assert "failed" == job.state
    assert app.hubs.model("org/a") is not None
    assert app.hubs.source(source.id).has_failed


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"one.safetensors": GOOD, "two.safetensors": GOOD}, "several checkpoints"),
        ({"vae/model.safetensors": GOOD, "unet/model.safetensors": GOOD}, "several checkpoints"),
        ({"model-00001-of-00002.safetensors": GOOD}, "no model.safetensors.index.json"),
        ({"model.safetensors": b"not safetensors at all"}, "no file of weights"),
        ({"model.safetensors": GOOD[:-9]}, "truncated"),
        (
            {"model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"},
            "pointer of Git LFS",
        ),
        ({"model.safetensors": b"<!doctype html><title>Sign in"}, "a web page (HTML)"),
        ({"model-00001-of-000002.safetensors": GOOD}, "its upload is not complete"),
        ({"model.safetensors.index.json": b"{}"}, "no weight_map"),
    ],
)
def test_no_checkpoint_to_go_by(
    hub: Hub, app: AppHarness, files: dict[str, bytes], says: str
) -> None:
    """Ambiguous names, and files that are not checkpoints, fail with the reason."""
    hub.push("org/a", files)
    state, code, detail = refused(app, hub.url)
    assert ("failed", "invalid_checkpoint") == (state, code)
    assert says in detail


def test_a_shard_that_is_missing(hub: Hub, app: AppHarness) -> None:
    """An index that names more than is there is found out before a shard is downloaded."""
    files = sharded(random_tensors(1))
    del files["model-00002-of-00002.safetensors"]
    hub.push("org/a", files)
    _, code, detail = refused(app, hub.url)
    assert "invalid_checkpoint" == code
    assert "lacks 1 of 2 shards" in detail
    assert ["model.safetensors.index.json"] == hub.downloads


def test_an_index_that_leads_outside(hub: Hub, app: AppHarness) -> None:
    """A shard is a file beside its index, and no path."""
    index = json.dumps({"weight_map": {"w": "../../secret.safetensors"}}).encode()
    hub.push("org/a", {"model.safetensors.index.json": index})
    assert "beside it" in refused(app, hub.url)[2]


def raw(**tensors: tuple[str, list[int], int]) -> bytes:
    """A checkpoint of types that numpy has not: dtype, shape, and bytes of each."""
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + b"\x38" * at


@pytest.mark.parametrize(
    "data",
    [
        gptq(),
        save({"l.W_q": np.ones((64, 64), np.uint8), "l.scale": np.ones(64, np.float32)}),
        save({"l.weight": np.ones((64, 32), np.uint8), "l.absmax": np.ones(64, np.float32)}),
        raw(w=("F4", [64, 64], 2048), s=("F8_E8M0", [64, 2], 128)),
        raw(w=("F8_E4M3", [8, 8], 64), w_scale=("F32", [3], 12)),
    ],
    ids=["gptq", "hqq", "packed", "mxfp4", "fp8"],
)
def test_quantised_weights(hub: Hub, app: AppHarness, data: bytes) -> None:
    """What is packed in a way that is not read, or whose parts do not fit, is refused; the message
    asks for the weights before quantisation.
    """
    hub.push("org/a", {"model.safetensors": data})
    state, code, detail = refused(app, hub.url)
    assert ("failed", "invalid_checkpoint") == (state, code)
    assert "before quantisation" in detail


def test_weights_that_are_no_numbers(hub: Hub, app: AppHarness) -> None:
    """NaN is found and named."""
    tensors = random_tensors(1)
    tensors["encoder.bias"][3] = np.nan
    hub.push("org/a", {"model.safetensors": safetensors(tensors)})
    assert "infinite or NaN" in refused(app, hub.url)[2]


def test_a_header_of_endless_tensors(hub: Hub, app: AppHarness) -> None:
    """A header of a million empty tensors is refused before it is parsed.

    No space is created, and the hub is not called again.
    """
    nothing = '"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    header = ("{" + ",".join(nothing % i for i in range(160_000)) + "}").encode()
    hub.push("org/a", {"model.safetensors": len(header).to_bytes(8, "little") + header})
    state, code, says = refused(app, hub.url)
    assert ("failed", "invalid_checkpoint") == (state, code)
    assert "at most 8000000 are read here" in says
    assert [] == app.hubs.spaces()


def test_more_than_is_declared(hub: Hub, app: AppHarness) -> None:
    """It ends with the first byte too many, and is not tried again."""
    hub.push("org/a", {"model.safetensors": GOOD})
    hub.sizes["model.safetensors"] = len(GOOD) - 1
    state, code, detail = refused(app, hub.url)
    assert ("failed", "hub_untrue") == (state, code)
    assert f"declares {len(GOOD) - 1} bytes" in detail


def test_less_than_is_declared(hub: Hub, app: AppHarness) -> None:
    """It may be the network: it is tried again, and the job put off."""
    hub.push("org/a", {"model.safetensors": GOOD})
    hub.sizes["model.safetensors"] = len(GOOD) + 1
    state, code, detail = refused(app, hub.url)
    assert ("queued", "hub_unavailable") == (state, code)
    assert "416" in detail


def test_other_bytes_than_are_declared(hub: Hub, app: AppHarness) -> None:
    """As many, but with another digest than the hub's."""
    hub.push("org/a", {"model.safetensors": GOOD})
    hub.blobs = dict.fromkeys(hub.blobs, GOOD[:-1] + b"\x00")
    state, code, detail = refused(app, hub.url)
    assert ("failed", "hub_untrue") == (state, code)
    assert "SHA-256" in detail


def test_an_endless_file(hub: Hub, tmp_path: Path) -> None:
    """Without a declared size it ends at the limit of a checkpoint, however much would come."""
    hub.push("org/a", {"model.safetensors": GOOD})
    hub.sizes["model.safetensors"] = -1

    def endless(request: Handler) -> bool:
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        with suppress(OSError):
            for _ in range(1000):
                request.wfile.write(bytes(1 << 16))
        request.close_connection = True
        return True

    hub.on_cdn = endless
    with open_hub_app(tmp_path, max_checkpoint_bytes=1 << 20) as app:
        state, code, detail = refused(app, hub.url)
    assert ("failed", "payload_too_large") == (state, code)
    assert "MODELKIN_MAX_CHECKPOINT_BYTES" in detail


def test_a_checkpoint_beyond_the_limit(hub: Hub, tmp_path: Path) -> None:
    """What is declared too large is not begun."""
    hub.push("org/a", {"model.safetensors": GOOD})
    with open_hub_app(tmp_path, max_checkpoint_bytes=len(GOOD) - 1) as app:
        state, code, _ = refused(app, hub.url)
    assert ("failed", "payload_too_large", []) == (state, code, hub.downloads)


@pytest.mark.parametrize("size", [len(GOOD), 1 << 60], ids=["whole", "window"])
def test_a_disk_that_is_too_small(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """What the disk does not hold is not begun: there may be room later."""
    monkeypatch.setattr("app.hubs.ingestion.files.downloads._MIN_FREE_BYTES", 1 << 60)
    hub.push("org/a", {"model.safetensors": GOOD})
    hub.sizes["model.safetensors"] = size
    with open_hub_app(tmp_path, max_checkpoint_bytes=1 << 61) as app:
        state, code, _ = refused(app, hub.url)
    assert ("queued", "storage_full", []) == (state, code, hub.downloads)
