"""Hubs that answer slowly: all their waits together are limited, and the place is given back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from app.hubs.clients.http import HubHttpClient, TransferLimits
from app.hubs.clients.protocol import HubFile
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.client import Egress
from app.infra.errors import HubUnavailable
from modelkin.core.foreign_json import Raw
from tests.app.hubs.conftest import GOOD, refused
from tests.support.app.harness import AppHarness
from tests.support.servers.fake_huggingface import Handler, Hub

NO_BYTES = 1 << 40
"""A pace at which no bytes earn time."""


def client(url: str, limits: TransferLimits, egress: Egress | None = None) -> HubHttpClient:
    """A client of a hub on loopback."""
    return HubHttpClient(
        url,
        egress or Egress(Allowlist.parse("127.0.0.1")),
        authorization=None,
        limits=limits,
        refusal=lambda *_: None,
    )


def slow_status(request: Handler) -> bool:
    """Wait before the status, and answer well."""
    time.sleep(0.2)
    request.say(200, b"[]", Link='</api/models>; rel="next"')
    return True


def slow_head(request: Handler) -> bool:
    """Wait within the head."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\n")
    time.sleep(0.2)
    request.wfile.write(b'Content-Length: 2\r\nLink: </api/models>; rel="next"\r\n\r\n[]')
    return True


def slow_body(request: Handler) -> bool:
    """Wait between two bytes of the body."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n")
    request.wfile.write(b'Link: </api/models>; rel="next"\r\n\r\n[')
    time.sleep(0.2)
    request.wfile.write(b"]")
    return True


def slow_redirects(request: Handler) -> bool:
    """Wait before each redirect."""
    time.sleep(0.2)
    with suppress(OSError):
        request.say(302, Location="/on/and/on")
    request.close_connection = True
    return True


def said_of(transfer: HubHttpClient) -> str:
    """What the error of a request says; nothing if it has an answer."""
    try:
        transfer.json("/api/models", Raw)
    except HubUnavailable as error:
        return str(error)
    return ""


@pytest.mark.parametrize("slowly", [slow_status, slow_head, slow_body, slow_redirects])
def test_slow_answers_share_one_limit(hub: Hub, slowly: Callable[[Handler], bool]) -> None:
    """Each answer is whole within the limit, and so many of them are too slow: three at most of
    0.2 s each begin in 0.5 s.
    """
    asked: list[str] = []

    def answer(request: Handler) -> bool:
        asked.append(request.path)
        with suppress(OSError):
            slowly(request)
        request.close_connection = True
        return True

    hub.on_hub = answer
    limits = TransferLimits(checkpoint_bytes=1, timeout=0.5, slowest=NO_BYTES, prompt=0.0)
    with closing(client(hub.url, limits)) as transfer:
        said = [said_of(transfer) for _ in range(10)]
    assert "too slow" in said[-1]
    assert "0.5 s in all" in said[-1]
    assert 1 <= len(asked) <= 3


def test_a_slow_resolver_counts() -> None:
    """Looking up the hub's name is a wait like any other."""
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        time.sleep(0.2)
        return ["127.0.0.1"]

    egress = Egress(Allowlist.parse("127.0.0.1"), resolve=resolve)
    limits = TransferLimits(checkpoint_bytes=1, timeout=0.5, slowest=NO_BYTES, prompt=0.0)
    with closing(client("http://hub.example:9", limits, egress)) as transfer:
        said = [said_of(transfer) for _ in range(10)]
    assert "" not in said
    assert 1 <= len(asked) <= 3


@pytest.mark.slow
def test_prompt_answers_are_never_too_many(hub: Hub) -> None:
    """Forty answers of 0.1 s take four seconds, and use up none of three seconds."""

    def promptly(request: Handler) -> bool:
        time.sleep(0.1)
        request.say(200, b"[]")
        return True

    hub.on_hub = promptly
    limits = TransferLimits(checkpoint_bytes=1, timeout=3.0, slowest=NO_BYTES, prompt=60.0)
    with closing(client(hub.url, limits)) as transfer:
        for _ in range(40):
            transfer.json("/api/models", Raw)


def test_an_early_haste_buys_no_later_delay(hub: Hub, tmp_path: Path) -> None:
    """However many bytes came at once, a download that then drips is too slow within the limit."""
    hub.push("org/a", {"model.safetensors": GOOD})
    dripped: list[int] = []

    def drip(request: Handler) -> bool:
        request.send_response(200)
        request.send_header("Content-Length", str(1 << 30))
        request.end_headers()
        with suppress(OSError):
            request.wfile.write(bytes(8 << 20))
            for number in range(50):
                time.sleep(0.2)
                request.wfile.write(b"x")
                dripped.append(number)
        request.close_connection = True
        return True

    hub.on_cdn = drip
    limits = TransferLimits(checkpoint_bytes=1 << 30, timeout=0.5, slowest=1 << 10)

    with (
        closing(client(hub.cdn, limits)) as transfer,
        pytest.raises(HubUnavailable, match="too slow"),
    ):
        transfer.download("/f", HubFile("f", 1 << 30), tmp_path / "f", None)
    assert len(dripped) < 10


@pytest.mark.slow
def test_a_download_at_a_fair_pace_takes_as_long_as_it_takes(hub: Hub, tmp_path: Path) -> None:
    """A file whose bytes keep coming may take longer than a hub may keep a job waiting."""

    def steadily(request: Handler) -> bool:
        request.send_response(200)
        request.send_header("Content-Length", "4000")
        request.end_headers()
        for _ in range(40):
            time.sleep(0.1)
            request.wfile.write(bytes(100))
        return True

    hub.on_cdn = steadily
    limits = TransferLimits(checkpoint_bytes=1 << 20, timeout=2.0, slowest=100, prompt=0.0)

    with closing(client(hub.cdn, limits)) as transfer:
        assert 4000 == transfer.download("/f", HubFile("f", 4000), tmp_path / "f", None)


def test_the_place_of_a_slow_sync_is_given_back(
    hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is queued for later with a reason that names the hub and the limit, and the next one
    runs.
    """
    hub.push("org/a", {"model.safetensors": GOOD})
    hub.on_hub = slow_redirects
    hurried = TransferLimits(checkpoint_bytes=1 << 30, timeout=0.5, prompt=0.0)
    with monkeypatch.context() as patched:
        patched.setattr(app.hubs.registry, "limits", hurried)
        state, code, detail = refused(app, hub.url)
    assert ("queued", "hub_unavailable") == (state, code)
    assert "0.5 s in all" in detail
    hub.on_hub = lambda _: False
    assert "succeeded" == app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").state
