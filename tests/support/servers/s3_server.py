"""An S3 of the tests: moto's, as a process of its own, with a bucket for each test."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from tests.support.servers.guardian import guard
from tests.support.tiers import needs

__all__ = ["S3", "s3_server"]

_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class S3:
    """A running server.

    Attributes:
        url: of its API.
    """

    url: str

    def bucket(self) -> str:
        """The URL of a prefix in a new bucket."""
        name = f"bucket-{secrets.token_hex(8)}"
        made = httpx.put(f"{self.url}/{name}", trust_env=False)
        assert made.is_success, made.text
        return f"s3://{name}/modelkin"

    def variables(self, url: str | None = None) -> dict[str, str]:
        """What the environment of its clients says; by another address, if one is given."""
        return {
            "AWS_ENDPOINT_URL": url or self.url,
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }


@contextmanager
def s3_server() -> Iterator[S3]:
    """A server without buckets, for the duration of the block."""
    needs("objects")
    guard()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
    )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + _TIMEOUT_S
        while not _answers(url):
            assert process.poll() is None, "moto.server has ended"
            assert time.monotonic() < end, "moto.server does not answer"
            time.sleep(0.05)
        yield S3(url)
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/moto-api/", timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False
