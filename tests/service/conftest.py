"""The service as a real process, one for all tests of a run, and a fresh space for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import modelkin
from tests.service.kin import Space
from tests.service.running import Server

Start = Callable[..., Server]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service that most tests share; it must survive them all."""
    running = Server(tmp_path_factory.mktemp("service")).start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    """HTTP as anyone may speak it."""
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[modelkin.Client]:
    """The SDK."""
    with modelkin.Client(server.url) as client:
        yield client


@pytest.fixture
def space(http: httpx.Client) -> Space:
    """An empty space of 10,000 parameters."""
    return Space(http)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts services of the test's own; none outlives it."""
    started: list[Server] = []

    def start(*flags: str, folder: Path = tmp_path) -> Server:
        started.append(Server(folder, *flags).start())
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.kill()


@pytest.fixture
def untouched(space: Space) -> Iterator[Space]:
    """A space with one model, which whatever the test sends may not change; and the service
    answers afterwards.
    """
    support = modelkin.Support.from_indices(range(0, space.m, 7), space.m)
    space.put("stored", support, tags=["t"])
    before = space.show(), space.model("stored")
    yield space
    assert before == (space.show(), space.model("stored"))
    assert 200 == space.http.get("/readyz").status_code
