"""What a service stores is readable for its own user alone."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.support.backends import SQLITE, EmptyBackend
from tests.support.http_space import Space, random_support
from tests.support.servers.server_process import Server

CLUSTERING = {"algorithm": "agglomerative", "distance_threshold": 0.5}


@pytest.fixture
def service(tmp_path: Path) -> Server:
    """A service to be started, in the folder of a user whose new files all others may read."""
    before = os.umask(0o022)
    (folder := tmp_path / "service").mkdir()
    os.umask(before)
    flags = f"--database-url=sqlite:///{folder}/data/m.db", "--egress-allow=127.0.0.1"
    return Server(folder, *flags, backend=EmptyBackend(SQLITE))


def stored(service: Server) -> list[Path]:
    """All that the service has made, but its log, which is the test's."""
    return [path for path in service.folder.rglob("*") if path != service.log]


def open_to_others(service: Server) -> list[str]:
    """Names and modes of what others may read or write."""
    modes = [(path, stat.S_IMODE(path.stat().st_mode)) for path in stored(service)]
    return [f"{path} {mode:o}" for path, mode in modes if mode & 0o077]


def use(service: Server) -> None:
    """Store a support with its sketch, a secret, and a job that a worker carries out."""
    with httpx.Client(base_url=service.url, timeout=30, trust_env=False) as http:
        space = Space(http)
        support = random_support(np.random.default_rng(1), space.m, 100)
        space.put("a", support)
        assert 200 == http.get(f"/v1/spaces/{space.name}/neighbors?model=a").status_code
        subscription = {"url": "http://127.0.0.1:9/", "events": ["support.stored"]}
        assert 201 == http.post("/v1/subscriptions", json=subscription).status_code
        asked = http.post(f"/v1/spaces/{space.name}/clusterings", json=CLUSTERING)
        job = f"/v1/jobs/{asked.json()['id']}"
        end = time.monotonic() + 60
        while http.get(job).json()["state"] in {"queued", "running"}:
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.mark.slow
def test_nothing_stored_is_open_to_others(service: Server) -> None:
    """Database and log of it, supports, sketches, jobs and the key: 0600, and folders 0700; also
    where an earlier version made them with the rights of its time.
    """
    use(service.start())
    names = {path.name for path in stored(service)}
    assert {"m.db", "m.db-wal", "m.db-shm", "secret.key"} <= names
    assert [] == open_to_others(service)
    service.kill()  # the logs stay
    next(path for path in service.blobs.iterdir() if path.is_dir()).chmod(0o755)
    for pattern in ("*.db", "*.db-wal", "*.db-shm"):
        for path in (service.folder / "data").glob(pattern):
            path.chmod(0o644)
    use(service.start())
    assert [] == open_to_others(service)
    assert 0 == service.stop()
