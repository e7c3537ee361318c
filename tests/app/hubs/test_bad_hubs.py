"""What hubs do wrong: each has its answer, which says what is wrong, and nothing half is stored."""

from __future__ import annotations

import json
import socket
import struct
import time
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from safetensors.numpy import save
from sqlalchemy import update

from app.hubs.clients import http, huggingface
from app.hubs.clients.http import MAX_ATTEMPTS, TransferLimits
from app.hubs.repositories import source_models
from app.hubs.service import SourceService
from app.infra.db.tables.jobs import JobRow
from app.infra.errors import HubForbidden, HubProtocolError
from app.jobs.service import JobService
from app.settings import Settings
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.models.checkpoints import random_tensors, safetensors, sharded
from tests.support.servers.fake_huggingface import TOKEN, Handler, Hub, answering, loopback_hub

GOOD = safetensors(random_tensors(1))


def refused(app: AppHarness, url: str, name: str = "org/a", **wanted: Any) -> tuple[str, str, str]:
    """How a sync ends that stores nothing: its state, and the code and the words of its error."""
    source = app.hubs.follow(url, **wanted)
    job = app.hubs.sync_model(source, name)
    assert job.error is not None, job.result
    assert [] == [path.name for path in downloads(app)]
    assert app.hubs.model(name) is None
    shown = app.hubs.source(source.id).last_error
    assert shown is not None
    assert job.error["code"] == shown["code"]
    return job.state, job.error["code"], job.error["detail"]


def downloads(app: AppHarness) -> list[Path]:
    """The download folders that are left."""
    folder = app.services[Settings].checkpoint_dir
    return [path for path in folder.glob("*/*") if path.is_dir()]


def test_an_unknown_repository(hub: Hub, app: AppHarness) -> None:
    """The hub answers 401 without a token and 404 with one; neither is tried again."""
    for token in (None, TOKEN):
        state, code, detail = refused(app, hub.url, token=token)
        assert ("failed", "hub_not_found") == (state, code)
        assert "/api/models/org/a" in detail


def test_a_token_that_is_no_good(hub: Hub, app: AppHarness) -> None:
    """Says so, and does not take the model for gone; the token is nowhere in the message."""
    hub.push("org/a", {"model.safetensors": GOOD})
    state, code, detail = refused(app, hub.url, token="hf_forged", on_delete="remove")
    assert ("failed", "hub_refused") == (state, code)
    assert "token" in detail
    assert "hf_forged" not in detail


@pytest.mark.parametrize("token", ["hf_SECRET\n", "hf_SE\rCRET", "hf_\0SECRET"])
def test_a_token_that_cannot_be_sent(
    hub: Hub, app: AppHarness, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is refused before anything is asked, and shown nowhere: not in the job, not in the source,
    not in the log.
    """
    hub.push("org/a", {"model.safetensors": GOOD})
    source = app.hubs.follow(hub.url, token=token)
    job = app.hubs.sync_model(source, "org/a")
    assert job.error is not None, job.result
    assert ("failed", "hub_refused", set()) == (job.state, job.error["code"], hub.hub_tokens)
    assert "control character" in job.error["detail"]
    assert "SECRET" not in f"{job} {app.hubs.source(source.id).last_error} {caplog.text}"


@pytest.mark.parametrize("token", ["hf_tök", " hf_blank ", "x" * 8000])
def test_a_token_of_any_text_is_sent(hub: Hub, app: AppHarness, token: str) -> None:
    """In UTF-8, without the blanks at its end that HTTP drops, however long it is."""
    hub.on_hub = answering(200, b"{}")
    app.hubs.sync_model(app.hubs.follow(hub.url, token=token), "org/a")
    sent = f"Bearer {token}".strip().encode().decode("latin-1")
    assert {sent} == {t for t in hub.hub_tokens if t is not None}


def test_a_gated_repository(hub: Hub, app: AppHarness) -> None:
    """Its page is open and its files are not: the message says where to accept the terms."""
    hub.push("org/a", {"model.safetensors": GOOD}, gated=True)
    state, code, detail = refused(app, hub.url)
    assert ("failed", "hub_refused") == (state, code)
    assert "accept its terms" in detail


def test_a_private_repository(hub: Hub, app: AppHarness) -> None:
    """Without a token it looks like a repository that does not exist."""
    hub.push("org/a", {"model.safetensors": GOOD}, private=True)
    assert ("failed", "hub_not_found") == refused(app, hub.url)[:2]


def test_no_safetensors(hub: Hub, app: AppHarness) -> None:
    """A pickle is never read, whatever else there is."""
    hub.push("org/a", {"pytorch_model.bin": b"pickled"})
    state, code, detail = refused(app, hub.url)
    assert ("failed", "invalid_checkpoint", []) == (state, code, hub.downloads)
    assert "'pytorch_model.bin' is a pickle" in detail


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"one.safetensors": GOOD, "two.safetensors": GOOD}, "several checkpoints"),
        ({"vae/model.safetensors": GOOD, "unet/model.safetensors": GOOD}, "several checkpoints"),
        ({"model-00001-of-00002.safetensors": GOOD}, "no model.safetensors.index.json"),
        ({"model.safetensors": b"not safetensors at all"}, "not a safetensors file"),
        ({"model.safetensors": GOOD[:-9]}, "truncated"),
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


def gptq() -> bytes:
    """Four bits packed into integers, with scales beside them."""
    return save(
        {
            "l.qweight": np.ones((64, 64), np.int32),
            "l.scales": np.ones((8, 64), np.float16),
        }
    )


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
        save({"l.weight": np.ones((64, 64), np.int8), "l.SCB": np.ones(64, np.float32)}),
        save({"l.weight": np.ones((64, 32), np.uint8), "l.absmax": np.ones(64, np.float32)}),
        raw(w=("F4", [64, 64], 2048), s=("F8_E8M0", [64, 2], 128)),
        raw(w=("F8_E4M3", [8, 8], 64), w_scale=("F32", [1], 4)),
    ],
    ids=["gptq", "int8", "packed", "mxfp4", "fp8"],
)
def test_quantised_weights(hub: Hub, app: AppHarness, data: bytes) -> None:
    """Packed or scaled values are refused; the message asks for the weights before quantisation."""
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


def test_a_disk_that_is_too_small(hub: Hub, tmp_path: Path) -> None:
    """What the disk does not hold is not begun: there may be room later."""
    hub.push("org/a", {"model.safetensors": GOOD})
    hub.sizes["model.safetensors"] = 1 << 60
    with open_hub_app(tmp_path, max_checkpoint_bytes=1 << 61) as app:
        state, code, _ = refused(app, hub.url)
    assert ("queued", "storage_full", []) == (state, code, hub.downloads)


def test_a_connection_that_breaks(hub: Hub, app: AppHarness) -> None:
    """A download resumes where it broke off, and its result is complete."""
    hub.push("org/a", {"model.safetensors": GOOD})
    ranges = []

    def breaks(request: Handler) -> bool:
        ranges.append(request.headers.get("Range"))
        if len(ranges) == MAX_ATTEMPTS:
            return False
        begin = 0 if ranges[-1] is None else int(ranges[-1][6:-1])
        part = GOOD[begin : begin + 1000]
        request.send_response(200 if begin == 0 else 206)
        request.send_header("Content-Length", str(len(GOOD) - begin))
        request.send_header("Content-Range", f"bytes {begin}-{len(GOOD) - 1}/{len(GOOD)}")
        request.end_headers()
        request.wfile.write(part)
        request.close_connection = True
        return True

    hub.on_cdn = breaks
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert "succeeded" == job.state, job.error
    assert [None, "bytes=1000-", "bytes=2000-"] == ranges


@pytest.mark.parametrize("status", [500, 502, 429])
def test_a_hub_that_is_overloaded(hub: Hub, app: AppHarness, status: int) -> None:
    """The job is tried again later, and the source shows the reason."""
    hub.on_hub = answering(status, b"busy", Retry_After=7)
    state, code, detail = refused(app, hub.url)
    assert ("queued", "hub_unavailable") == (state, code)
    assert f"answers {status}" in detail
    assert "7 s" in detail


def test_a_hub_that_is_down(app: AppHarness) -> None:
    """If no server listens, the job is tried again later."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    state, code, detail = refused(app, f"http://127.0.0.1:{port}")
    assert ("queued", "hub_unavailable") == (state, code)
    assert "cannot be reached" in detail


def test_a_hub_that_says_nothing(hub: Hub, tmp_path: Path) -> None:
    """Silence ends after the time that was set."""

    def silent(_: Handler) -> bool:
        time.sleep(1)
        return True

    hub.on_hub = silent
    with open_hub_app(tmp_path, hub_timeout_seconds=0.3) as app:
        began = time.monotonic()
        state, code, detail = refused(app, hub.url)
    assert ("queued", "hub_unavailable") == (state, code)
    assert "0.3 s" in detail
    assert time.monotonic() - began < 5


def test_retry_after_is_respected(hub: Hub, app: AppHarness) -> None:
    """A hub that asks for an hour is not called for an hour, and this does not count as an attempt.

    An event of the model is a reason to call it at once.
    """
    hub.push("org/a", {"model.safetensors": GOOD})
    source = app.hubs.follow(hub.url)
    hub.on_hub = answering(503, Retry_After=3600)
    job = app.hubs.sync_model(source, "org/a")
    assert job.not_before is not None
    wait = (job.not_before - datetime.now(UTC)).total_seconds()
    assert 3500 < wait <= 3600
    assert ("queued", 0) == (job.state, job.attempts)
    hub.on_hub = lambda _: False
    again = app.hubs.enqueue(source, "org/a")
    assert (job.id, None) == (again.id, app.worker.job(job.id).not_before)
    assert "succeeded" == app.worker.execute(job).state


def test_an_outage_of_hours_ends_no_look(hub: Hub, app: AppHarness) -> None:
    """Pauses grow with what was waited already, up to two hours; after three days it gives up."""
    hub.on_hub = answering(502)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    pauses = []
    for waited in (0, 600, 6000, 80_000, 250_000, 260_000):
        began = datetime.now(UTC)
        with app.database.writing() as session:
            moment = began - timedelta(seconds=waited)
            session.execute(update(JobRow).where(JobRow.id == job.id).values(started_at=moment))
        job = app.worker.execute(job)
        if job.state == "queued":
            assert job.not_before is not None
            pauses.append(round((job.not_before - began).total_seconds(), -1))
    assert [0, 600, 6000, 7200, 7200] == pauses
    assert job.error is not None
    assert ("failed", "hub_unavailable") == (job.state, job.error["code"])
    assert "(for 3.0 days)" in job.error["detail"]


def test_a_hub_whose_headers_drip(
    hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The minimum rate also applies to everything before the first byte of a file."""
    hub.push("org/a", {"model.safetensors": GOOD})

    def drip(request: Handler) -> bool:
        with suppress(OSError):
            request.wfile.write(b"HTTP/1.1 200 OK\r\n")
            for number in range(150):
                request.wfile.write(b"X-%d: y\r\n" % number)
                time.sleep(0.02)
        request.close_connection = True
        return True

    hub.on_cdn = drip
    hurried = TransferLimits(checkpoint_bytes=1 << 30, timeout=2.0, grace=0.3)
    monkeypatch.setattr(app.hubs.registry, "limits", hurried)
    began = time.monotonic()
    state, code, detail = refused(app, hub.url)
    assert time.monotonic() - began < 2
    assert ("queued", "hub_unavailable") == (state, code)
    assert "too slow" in detail


def test_a_hub_that_takes_too_long_altogether(
    hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fast enough for every limit of one answer, and still it does not keep a worker for days."""
    hub.push("org/a", {"model.safetensors": GOOD})

    def slowly(request: Handler) -> bool:
        request.send_response(200)
        request.send_header("Content-Length", str(len(GOOD)))
        request.end_headers()
        with suppress(OSError):
            for at in range(0, len(GOOD), 100):
                request.wfile.write(GOOD[at : at + 100])
                time.sleep(0.02)
        request.close_connection = True
        return True

    hub.on_cdn = slowly
    limits = TransferLimits(checkpoint_bytes=1 << 30, timeout=2.0, slowest=10, total=0.4)
    monkeypatch.setattr(app.hubs.registry, "limits", limits)
    state, code, detail = refused(app, hub.url)
    assert ("failed", "hub_too_slow") == (state, code)
    assert "MODELKIN_HUB_SYNC_TIMEOUT_SECONDS" in detail


def test_a_hub_of_many_requests_hears_that_it_is_over(hub: Hub, app: AppHarness) -> None:
    """Before each request the job is asked whether it was cancelled: not only while bytes come."""
    asked: list[str] = []

    def cancel(request: Handler) -> bool:
        asked.append(request.path)
        with app.database.writing() as session:
            app.services[JobService].cancel(session, app.tenant, job.id)
        time.sleep(0.5)  # progress is recorded so often
        request.say(302, Location="/on/and/on")
        return True

    hub.on_hub = cancel
    source = app.hubs.follow(hub.url)
    job = app.hubs.enqueue(source, "org/a")
    assert "cancelled" == app.worker.execute(job).state
    assert 1 == len(asked)


@pytest.mark.slow
def test_a_hub_that_drips(hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single bytes avoid the timeout, but the download still ends: there is a minimum rate."""
    hub.push("org/a", {"model.safetensors": GOOD})

    def drip(request: Handler) -> bool:
        request.send_response(200)
        request.send_header("Content-Length", str(len(GOOD)))
        request.end_headers()
        with suppress(OSError):
            for at in range(100):
                request.wfile.write(GOOD[at : at + 1])
                time.sleep(0.02)
        request.close_connection = True
        return True

    hub.on_cdn = drip
    hurried = TransferLimits(checkpoint_bytes=1 << 30, timeout=2.0, grace=0.3)
    monkeypatch.setattr(app.hubs.registry, "limits", hurried)
    state, code, detail = refused(app, hub.url)
    assert ("queued", "hub_unavailable") == (state, code)
    assert "too slow" in detail


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"<html>", "hub_untrue"),
        (b"[1]", "hub_untrue"),
        (b"{}", "hub_untrue"),
        (b"[" * 100_000, "hub_untrue"),
        (b'{"id": 7, "sha": {"a": 1}, "siblings": [3]}', "hub_untrue"),
        (b'{"id": "org/a", "sha": "1", "siblings": {"a": 1}, "tags": 3}', "invalid_checkpoint"),
        (b'{"id": "..", "sha": "1", "siblings": []}', "invalid_name"),
    ],
)
def test_answers_that_are_none(hub: Hub, app: AppHarness, answer: bytes, code: str) -> None:
    """Whatever comes, it is an error with a code and no bug."""
    hub.on_hub = answering(200, answer)
    assert ("failed", code) == refused(app, hub.url)[:2]


def test_an_answer_without_end(hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is not a file is read up to a limit only."""
    hub.on_hub = answering(200, b'{"a": "' + b" " * (4 << 20))
    monkeypatch.setattr(
        app.hubs.registry, "limits", TransferLimits(checkpoint_bytes=1 << 30, answer_bytes=1 << 20)
    )
    state, code, detail = refused(app, hub.url)
    assert ("failed", "hub_untrue") == (state, code)
    assert "more than" in detail


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/latest/meta-data", "http://10.0.0.1/x", "http://[::1]/x"]
)
def test_a_redirect_to_where_nobody_goes(hub: Hub, app: AppHarness, location: str) -> None:
    """Every hop is checked: a hub does not lead the service into its own network."""
    hub.push("org/a", {"model.safetensors": GOOD})
    hub.on_cdn = answering(302, Location=location)
    state, code, detail = refused(app, hub.url)
    assert ("failed", "egress_refused") == (state, code)
    assert "MODELKIN_EGRESS_ALLOW" in detail


@pytest.mark.parametrize("location", ["file:///etc/passwd", "//", "gopher://127.0.0.1/"])
def test_a_redirect_to_no_address(hub: Hub, app: AppHarness, location: str) -> None:
    """A redirect to an invalid address fails the download."""
    hub.push("org/a", {"model.safetensors": GOOD})
    hub.on_cdn = answering(302, Location=location)
    assert "failed" == refused(app, hub.url)[0]


@pytest.mark.parametrize(
    "link", ["http://[", "http://127.0.0.1:1/api/models", "https://huggingface.co/api/models"]
)
def test_a_listing_that_goes_on_elsewhere(hub: Hub, app: AppHarness, link: str) -> None:
    """A page leads to another one of the same hub, or the listing fails and says so."""
    hub.on_hub = answering(200, b'[{"id": "org/a"}]', Link=f'<{link}>; rel="next"')
    source = app.hubs.follow(hub.url, token=TOKEN)
    with app.hubs.opened(source) as opened, pytest.raises(HubProtocolError):
        list(opened.models({}))


@pytest.mark.parametrize("of", ["answer", "file"])
def test_what_is_packed_is_not_unpacked(hub: Hub, app: AppHarness, of: str) -> None:
    """Some kilobytes that would become 256 MiB are refused as they are, and nothing is made of
    them in memory.
    """
    hub.push("org/a", {"model.safetensors": GOOD})
    packer = zstandard.ZstdCompressor().compressobj()
    body = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()
    assert len(body) < 64 << 10
    packed = answering(200, body, Content_Encoding="zstd")
    hub.on_hub, hub.on_cdn = (packed, hub.on_cdn) if of == "answer" else (hub.on_hub, packed)
    tracemalloc.start()
    try:
        state, code, detail = refused(app, hub.url)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ("failed", "hub_untrue") == (state, code)
    assert "compressed" in detail
    assert peak < 16 << 20


def test_a_page_of_endless_names(
    hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are spread over pages and owners, so many models are listed and no more."""
    monkeypatch.setattr(http, "_MAX_MODELS", 5)
    names = [{"id": f"org/{number}"} for number in range(3)]
    hub.on_hub = answering(200, json.dumps(names).encode())
    with app.hubs.opened(app.hubs.follow(hub.url)) as opened:
        assert 3 == len(list(opened.models({"owners": ["a"]})))
        with pytest.raises(HubForbidden, match="more than 5 models"):
            list(opened.models({"owners": ["a", "b"]}))


def test_a_listing_without_end(hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that lead round in circles end, too."""
    monkeypatch.setattr(huggingface, "_MAX_PAGES", 5)
    link = '</api/models?cursor=1>; rel="next"'
    hub.on_hub = answering(200, b'[{"id": "org/a"}]', Link=link)
    with (
        app.hubs.opened(app.hubs.follow(hub.url)) as opened,
        pytest.raises(HubForbidden, match="more than 5 pages"),
    ):
        list(opened.models({}))


def test_redirects_without_end(hub: Hub, app: AppHarness) -> None:
    """Going round in circles ends."""
    hub.on_hub = answering(302, Location="/round/and/round")
    state, code, detail = refused(app, hub.url)
    assert ("failed", "hub_untrue") == (state, code)
    assert "redirects more than" in detail


def test_a_hub_on_an_address_that_is_not_allowed(hub: Hub, tmp_path: Path) -> None:
    """What was allowed when the source was made may not be so any more."""
    hub.push("org/a", {"model.safetensors": GOOD})
    with open_hub_app(tmp_path) as app:
        source = app.hubs.follow(hub.url)
    with open_hub_app(tmp_path, egress_allow=None) as app:
        job = app.hubs.sync_model(source, "org/a")
    assert job.error is not None
    assert ("failed", "egress_refused") == (job.state, job.error["code"])


def test_a_delta_without_a_base(hub: Hub, app: AppHarness) -> None:
    """Where delta was asked for, a base is needed."""
    hub.push("org/a", {"model.safetensors": GOOD})
    state, code, detail = refused(app, hub.url, importance="delta")
    assert ("failed", "invalid_parameter") == (state, code)
    assert "declares no base model" in detail


def test_a_base_of_another_layout(hub: Hub, app: AppHarness) -> None:
    """Asked for, the delta fails and says where they differ; else the weights stand in for it."""
    wide = safetensors(random_tensors(1, {"decoder.weight": (3, 3)}))
    hub.push("org/base", {"model.safetensors": wide})
    hub.push("org/a", {"model.safetensors": GOOD}, card={"base_model": "org/base"})
    state, code, detail = refused(app, hub.url, importance="delta")
    assert ("failed", "space_mismatch") == (state, code)
    assert "'decoder.weight', of shape [40, 25] in the model and [3, 3] in the base" in detail
    outcome = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").result
    assert outcome is not None
    assert "weight" == outcome["importance"]
    assert "no delta: its base org/base@" in outcome["notes"][0]
    assert "its base org/base@" in outcome["delta"]["reason"]


def test_a_base_of_another_layout_is_not_downloaded(hub: Hub, app: AppHarness) -> None:
    """The headers of a base show that it does not fit.

    They are a few kilobytes, whatever its size and its number of shards.
    """
    large = random_tensors(1, {"decoder.weight": (1 << 20,), "other": (1 << 20,)})
    hub.push("org/base", sharded(large, 2))
    hub.push("org/whole", {"model.safetensors": safetensors(large)})
    sent: list[int] = []

    def counting(request: Handler) -> bool:
        sent.append(int(request.headers.get("Range", "bytes=0-99999999")[8:]) + 1)
        return False

    hub.on_cdn = counting
    for base in ("org/base", "org/whole"):
        name = f"{base}-tuned"
        hub.push(name, {"model.safetensors": GOOD}, card={"base_model": base})
        sent.clear()
        outcome = app.hubs.sync_model(app.hubs.follow(hub.url), name).result
        assert outcome is not None
        assert ("weight", True) == (outcome["importance"], "another layout" in outcome["notes"][0])
        assert 100_000_000 == sent[0]
        assert sum(sent[1:]) < 1 << 20


def test_a_model_that_is_its_base(hub: Hub, app: AppHarness) -> None:
    """There is no delta where nothing differs."""
    hub.push("org/base", {"model.safetensors": GOOD})
    hub.push("org/a", {"model.safetensors": GOOD}, card={"base_model": "org/base"})
    state, code, detail = refused(app, hub.url, importance="delta")
    assert ("failed", "invalid_importance") == (state, code)
    assert "no weight differs from its base" in detail
    outcome = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").result
    assert outcome is not None
    assert "weight" == outcome["importance"]


def test_a_base_that_is_not_given(hub: Hub, app: AppHarness) -> None:
    """An unreadable base fails an explicit delta; otherwise it is only a note."""
    hub.push("org/a", {"model.safetensors": GOOD}, card={"base_model": "org/secret"})
    state, code, detail = refused(app, hub.url, importance="delta")
    assert ("failed", "hub_not_found") == (state, code)
    assert "the base of org/a@" in detail
    outcome = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").result
    assert outcome is not None
    assert "base org/secret is not available" in outcome["notes"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "gated", "code"),
    [
        ({"model.safetensors": GOOD}, True, "hub_refused"),
        ({"pytorch_model.bin": b"pickled"}, False, "invalid_checkpoint"),
        ({"model.safetensors": gptq()}, False, "invalid_checkpoint"),
    ],
    ids=["gated", "pickled", "quantised"],
)
def test_a_base_that_is_of_no_use(
    hub: Hub, app: AppHarness, files: dict[str, bytes], gated: bool, code: str
) -> None:
    """A base whose files cannot be had fails a delta that was asked for; else the weights stand in
    for it, until a later sync finds that they can.
    """
    hub.push("org/base", files, gated=gated)
    tuned = safetensors(random_tensors(2))
    hub.push("org/a", {"model.safetensors": tuned}, card={"base_model": "org/base"})
    assert ("failed", code) == refused(app, hub.url, importance="delta")[:2]
    source = app.hubs.follow(hub.url)
    outcome = app.hubs.sync_model(source, "org/a").result
    assert outcome is not None
    assert "weight" == outcome["importance"]
    assert "no delta: base org/base" in outcome["notes"][0]
    hub.push("org/base", {"model.safetensors": GOOD}, gated=False)
    again = app.hubs.sync_model(source, "org/a").result
    assert again is not None
    assert "space" in again["delta"]


def test_a_name_that_another_hub_has_taken(hub: Hub, app: AppHarness) -> None:
    """Two hubs do not write over each other's models."""
    hub.push("org/a", {"model.safetensors": GOOD})
    app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    before = app.hubs.model("org/a")
    with loopback_hub() as other:
        other.push("org/a", {"model.safetensors": safetensors(random_tensors(2))})
        job = app.hubs.sync_model(app.hubs.follow(other.url), "org/a")
    assert job.error is not None, job.result
    assert ("failed", "conflict") == (job.state, job.error["code"])
    assert before == app.hubs.model("org/a")


def test_a_source_that_only_records(app: AppHarness) -> None:
    """Without a url nothing is asked, and the message says how to change that."""
    source = app.hubs.follow(None)
    job = app.hubs.sync_model(source, "org/a")
    assert job.error is not None
    assert ("failed", "invalid_parameter") == (job.state, job.error["code"])
    assert "only recorded" in job.error["detail"]


def test_a_source_that_was_deleted(hub: Hub, app: AppHarness) -> None:
    """A sync that comes after is in vain, and no failure."""
    source = app.hubs.follow(hub.url)
    job = app.hubs.enqueue(source, "org/a")
    with app.database.writing() as session:
        app.services[SourceService].delete(session, app.tenant, source.id)
    done = app.worker.execute(job)
    assert done.result is not None, done.error
    assert "ignored" == done.result["outcome"]


def test_a_failure_is_known_with_its_revision(hub: Hub, app: AppHarness) -> None:
    """What is wrong with a revision is noted, so that a poll does not try it again and again."""
    sha = hub.push("org/a", {"pytorch_model.bin": b"pickled"})
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    with app.database.reading() as session:
        seen = list(source_models.seen_models(session, source.id))
    assert [("org/a", sha)] == [(model.name, model.revision) for model in seen]
