"""Services that a test ends in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.servers.server_process import Server


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a service on SQLite: signals and restarts have nothing to do with the database."""
    started: list[Server] = []

    def start(*flags: str) -> Server:
        started.append(Server(tmp_path, *flags).start())
        return started[-1]

    yield start
    for server in started:
        if server.process.is_alive():
            server.kill()
