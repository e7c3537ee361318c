"""Services that keep files of learngenes, and spaces with clusters."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from modelkin import Support
from tests.support.backends import Backend
from tests.support.declared_problems import checked
from tests.support.http_space import Space, ok
from tests.support.servers.postgres import Postgres
from tests.support.servers.server_process import Server

M = 1000
MAX_BYTES = 60_000
GROUPS = {"near": 0, "far": 2}
"""The first index of each group."""


@pytest.fixture(scope="session")
def keepers(postgres: Postgres) -> Iterator[dict[str, Server]]:
    """The services of these tests by database; each starts on first use."""
    running: dict[str, Server] = {}
    yield running
    for server in running.values():
        assert server.stop() == 0, server.log.read_text()


@pytest.fixture(scope="session")
def keeping(
    backend: Backend, keepers: dict[str, Server], tmp_path_factory: pytest.TempPathFactory
) -> Server:
    """A service that keeps two files of a cluster, and does its own jobs."""
    if backend.name not in keepers:
        flags = f"--max-learngene-bytes={MAX_BYTES}", "--keep-learngenes=2", "--embedded-worker=on"
        folder, key = tmp_path_factory.mktemp("learngenes"), "x" * 32
        server = Server(folder, *flags, backend=backend, MODELKIN_ENCRYPTION_KEYS=key)
        keepers[backend.name] = server.start()
    return keepers[backend.name]


@pytest.fixture(scope="session")
def keeper(keeping: Server) -> Iterator[httpx.Client]:
    """A client of it; an answer that its operation does not declare fails the test."""
    with checked(httpx.Client(base_url=keeping.url, timeout=60, trust_env=False)) as client:
        yield client


@pytest.fixture
def clustered(keeper: httpx.Client) -> Space:
    """A space of that service with two clusters, 0 and 1."""
    space = Space(keeper, M)
    starts = {f"{name}{at}": (start, at) for at in range(3) for name, start in GROUPS.items()}
    space.put_all(
        {
            name: Support.from_indices(np.arange(start, M, 4) + (at == 2), M)
            for name, (start, at) in starts.items()
        }
    )
    cluster(space)
    return space


def cluster(space: Space, **more: object) -> str:
    """Cluster a space into two groups; the id of the clustering."""
    body = {"algorithm": "agglomerative", "n_clusters": 2, **more}
    job: str = space.http.post(space.path("clusterings"), json=body).json()["id"]
    end = time.monotonic() + 60
    while (found := ok(space.http.get(f"/v1/jobs/{job}")))["state"] != "succeeded":
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return job
