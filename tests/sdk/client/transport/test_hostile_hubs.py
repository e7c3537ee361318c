"""Hubs that lie to either client while it gets a learngene: an error in time, and no file."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from modelkin import LearngeneInfo
from modelkin.errors import ConnectionFailed, LearngeneMismatch, ModelkinError
from tests.support.blocking_client import Connect
from tests.support.models.learngene_files import gene, manifest_of
from tests.support.servers.hostile import Script, chunk, endless, head, hostile_server

DATA = gene()
SECONDS = 0.4
KIND = "application/octet-stream"
PACKED = gzip.compress(bytes(1 << 24))


def then(first: bytes, rest: Iterator[bytes | float]) -> Iterator[bytes | float]:
    """Some bytes, and what never ends."""
    yield first
    yield from rest


Case = tuple[Script, type[ModelkinError], str]
CASES: dict[str, Case] = {
    "more than the manifest says": (
        lambda: then(head("Transfer-Encoding: chunked", kind=KIND), endless(chunk(bytes(65_536)))),
        LearngeneMismatch,
        "more than the",
    ),
    "a compressed file": (
        lambda: iter([head(f"Content-Length: {len(PACKED)}", "Content-Encoding: gzip") + PACKED]),
        LearngeneMismatch,
        "compressed",
    ),
    "a file byte by byte": (
        lambda: then(head(f"Content-Length: {len(DATA)}", kind=KIND), endless(b"x", 0.05)),
        ConnectionFailed,
        "does not give the learngene",
    ),
    "a head byte by byte": (
        lambda: then(b"HTTP/1.1 200 OK\r\nX-More: ", endless(b"y", 0.05)),
        ConnectionFailed,
        "does not give the learngene",
    ),
    "go on, go on": (
        lambda: endless(b"HTTP/1.1 100 Continue\r\n\r\n" * 10, 0.0),
        ConnectionFailed,
        "does not give the learngene",
    ),
    "a refusal without an end": (
        lambda: then(head("Connection: close", status="404 No"), endless(bytes(65_536))),
        LearngeneMismatch,
        "not there any more",
    ),
    "redirects": (
        lambda: iter([head("Location: /again", "Content-Length: 0", status="302 Found")]),
        LearngeneMismatch,
        "redirects more than 5 times",
    ),
}


@pytest.mark.parametrize(("script", "kind", "said"), CASES.values(), ids=CASES.keys())
def test_a_lying_hub_gives_no_file(
    script: Script, kind: type[ModelkinError], said: str, connect: Connect, tmp_path: Path
) -> None:
    """The bytes are bounded by the manifest, the time by ``timeout`` for each 16 MiB."""
    known = manifest_of(DATA)
    with hostile_server(script) as server, connect("http://kin.test", timeout=SECONDS) as client:
        found = LearngeneInfo(
            space="digits",
            cluster=3,
            version=1,
            digest=known["digest"],
            bytes=len(DATA),
            num_tensors=len(known["tensors"]),
            kept=False,
            reference={
                "kind": "mlflow",
                "url": server.url,
                "model": "m",
                "version": "1",
                "path": "gene",
            },
            created_at=datetime(2026, 1, 2, tzinfo=UTC),
        )
        with pytest.raises(kind, match=said):
            client.learngenes.fetch(found, tmp_path / "gene.safetensors")
        assert server.closed.wait(30)
    assert [] == list(tmp_path.iterdir())
