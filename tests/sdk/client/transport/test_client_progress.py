"""Progress reports of uploads."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin.core.support import Support
from modelkin.errors import ConnectionFailed, InvalidParameter

M = 2_000_000
SUPPORT = Support.from_indices(np.flatnonzero(np.random.default_rng(1).random(M) < 0.1), M)
BODY = SUPPORT.to_bytes()  # some pieces long, for chance does not compress
SIGNATURE = SUPPORT.signature()
UPLOADS: dict[str, Callable[..., object]] = {
    "support": lambda client, progress: client.put_support("s", "a", SUPPORT, progress=progress),
    "signature": lambda client, progress: client.put_signature(
        "s", "a", SIGNATURE, progress=progress
    ),
}
SENT = {"support": BODY, "signature": SIGNATURE.to_bytes()}


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", UPLOADS)
def test_every_byte_is_reported(kind: str, wire: Any, model_json: dict[str, Any]) -> None:
    """Reports grow from 0 to the whole body, which arrives as it would without them."""
    reports: list[tuple[int, int]] = []
    client = wire.client(httpx.Response(201, json=model_json))
    UPLOADS[kind](client, lambda sent, total: reports.append((sent, total)))
    size = len(SENT[kind])
    steps = [*range(0, size, 1 << 16), size]
    assert [(sent, size) for sent in steps] == reports
    assert SENT[kind] == wire.requests[0].content


def test_the_length_is_told_in_advance(wire: Any, model_json: dict[str, Any]) -> None:
    """A body in pieces still has its length in front, so that a service can refuse it at once."""
    wire.client(httpx.Response(201, json=model_json)).put_support(
        "s", "a", SUPPORT, progress=lambda sent, total: None
    )
    headers = wire.requests[0].headers
    assert (str(len(BODY)), None) == (
        headers["content-length"],
        headers.get("transfer-encoding"),
    )


def test_another_try_begins_again(wire: Any, model_json: dict[str, Any]) -> None:
    """A repeated upload sends, and reports, everything again."""
    sent: list[int] = []
    client = wire.client(httpx.ReadError("reset"), httpx.Response(201, json=model_json))
    client.put_support("s", "a", SUPPORT, progress=lambda done, total: sent.append(done))
    assert 2 == sent.count(0) == sent.count(len(BODY))
    assert [BODY, BODY] == [request.content for request in wire.requests]


def test_a_report_may_end_the_upload(wire: Any, model_json: dict[str, Any]) -> None:
    """What a progress function raises is what the caller gets, and nothing is sent again."""

    reports: list[int] = []

    def stop(sent: int, total: int) -> None:
        reports.append(sent)
        if sent:
            raise RuntimeError("enough")

    client = wire.client(httpx.Response(201, json=model_json))
    with pytest.raises(RuntimeError, match="enough"):
        client.put_support("s", "a", SUPPORT, progress=stop)
    assert [0, 1 << 16] == reports
    assert "org/a" == client.put_support("s", "a", SUPPORT).model


def test_a_terminal_shows_a_bar(
    wire: Any, model_json: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """progress=True draws one line on a terminal, from nothing to everything, and wipes it."""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "200")
    wire.client(httpx.Response(201, json=model_json)).put_support(
        "s", "org/a", SUPPORT, progress=True
    )
    drawn = terminal.getvalue().split("\r")
    size = f"of {len(BODY) / 1e6:.1f} MB\x1b[K"
    assert f"org/a [{'.' * 30}]   0% {size}" == drawn[1]
    assert [f"org/a [{'#' * 30}] 100% {size}", "\x1b[K"] == drawn[-2:]


def test_a_long_name_stays_on_its_line(
    wire: Any, model_json: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that the terminal has no room for is cut, since a second line is never wiped."""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    wire.client(httpx.Response(201, json=model_json)).put_support(
        "s", "n" * 200, SUPPORT, progress=True
    )
    lines = terminal.getvalue().split("\r")
    assert max(len(line.removesuffix("\x1b[K")) for line in lines) < 80


def test_a_failure_wipes_the_bar(wire: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that fails leaves an empty line for the error."""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    client = wire.client(httpx.WriteError("broken pipe"), retries=0)
    with pytest.raises(ConnectionFailed):
        client.put_support("s", "a", SUPPORT, progress=True)
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("progress", [True, False])
def test_no_terminal_no_bar(
    progress: bool, wire: Any, model_json: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """A log gets no bars, asked for or not."""
    client = wire.client(httpx.Response(201, json=model_json))
    client.put_support("s", "a", SUPPORT, progress=progress)
    assert "" == capfd.readouterr().err


@pytest.mark.parametrize("progress", [None, 1, "bar"])
def test_other_progress_is_refused(progress: Any, wire: Any) -> None:
    """What is neither a function nor true nor false is refused before anything is sent."""
    with pytest.raises(InvalidParameter, match="progress must be True, False or a function"):
        wire.client(httpx.Response(500)).put_support("s", "a", SUPPORT, progress=progress)
    assert [] == wire.requests
