"""Hubs that break off, drip, lie or never end: the error has a code, and nothing half is stored."""

from __future__ import annotations

import json
import socket
import time
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard
from sqlalchemy import update

from app.hubs.clients import http, huggingface
from app.hubs.clients.http import MAX_ATTEMPTS, TransferLimits
from app.infra.db.tables.jobs import JobRow
from app.infra.errors import HubForbidden, HubProtocolError
from app.jobs.service import JobService
from tests.app.hubs.conftest import GOOD, refused
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.servers.fake_huggingface import TOKEN, Handler, Hub, answering


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
    hurried = TransferLimits(checkpoint_bytes=1 << 30, timeout=0.3)
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
    hurried = TransferLimits(checkpoint_bytes=1 << 30, timeout=0.3)
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
        (b'{"id": "org/a", "sha": "1", "siblings": {"a": 1}, "tags": 3}', "hub_untrue"),
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
