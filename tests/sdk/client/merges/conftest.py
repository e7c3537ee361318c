"""One service for all of it: what the SDK does is the same on each database."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import modelkin
from tests.support.declared_problems import checked
from tests.support.servers.server_process import Server


@pytest.fixture(scope="session")
def server(sqlite_server: Server) -> Server:
    """The service that the tests share; a worker ends what takes too long."""
    return sqlite_server


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    """A plain client of it; an answer that its operation does not declare fails the test."""
    with checked(httpx.Client(base_url=server.url, timeout=60, trust_env=False)) as client:
        yield client


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[modelkin.Client]:
    """A client of the SDK of it."""
    with modelkin.Client(server.url) as client:
        yield client
