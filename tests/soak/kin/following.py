"""A service that follows a hub by one source with default settings, and is killed meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.servers.server_process import Server

__all__ = ["followed"]

_PAUSE_S: Final = 0.2
_QUIET: Final = 3
"""How often in a row nothing may be left to do before all is done: a job enqueues others."""


@contextmanager
def followed(
    folder: Path,
    hub: str,
    count: int,
    *flags: str,
    kills: Sequence[int] = (),
    patience_s: float = 1800.0,
) -> Iterator[httpx.Client]:
    """A client of a service that has read all models of a hub, and made all anatomies.

    Args:
        folder: for the service.
        hub: the address of the hub.
        count: how many models it has.
        flags: of the service.
        kills: with so many fingerprints stored the process is killed, and started again.
        patience_s: seconds for all of it.
    """
    folder.mkdir(exist_ok=True)
    server = Server(folder, "--egress-allow=127.0.0.1", *flags).start()
    try:
        with _client(server) as http:
            asked = {"kind": "huggingface", "space": "followed", "secret": "s", "url": hub}
            made = http.post("/v1/sources", json=asked).raise_for_status().json()
            source = f"/v1/sources/{made['id']}"
        end = time.monotonic() + patience_s
        for least in [*kills, count]:
            with _client(server) as http:
                while (read := _read(http, source)) < least:
                    assert time.monotonic() < end, f"{read} of {least} fingerprints"
                    time.sleep(_PAUSE_S)
            if least < count:
                server.kill()
                server.start()
        with _client(server) as http:
            _wait(http, end)
            yield http
    finally:
        server.stop()


def _read(http: httpx.Client, source: str) -> int:
    """How many models of a source have a fingerprint."""
    counts = http.get(source).raise_for_status().json()["fingerprint_counts"]
    return int(counts["read"])


def _pages(http: httpx.Client, path: str, **query: Any) -> Iterator[dict[str, Any]]:
    """The items of a listing."""
    cursor: dict[str, str] = {}
    while True:
        answer = http.get(path, params={"limit": 1000, **query, **cursor}).raise_for_status().json()
        yield from answer["items"]
        if answer["next_cursor"] is None:
            return
        cursor = {"cursor": answer["next_cursor"]}


def _wait(http: httpx.Client, end: float) -> None:
    """Wait until no job is left."""
    quiet = 0
    while quiet < _QUIET:
        assert time.monotonic() < end, "jobs are left"
        left = [job for job in _pages(http, "/v1/jobs") if job["state"] in {"queued", "running"}]
        quiet = 0 if left else quiet + 1
        time.sleep(_PAUSE_S)


def _client(server: Server) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=120, trust_env=False)
