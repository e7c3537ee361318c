"""Renewals of all processes of a service under load: how many calls fail without a retry?

``python -m tests.soak.restarts`` (``make soak``) renews processes 50 times on each database, or on
the one that ``--database`` names.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.http_space import SIGNATURE, random_support
from tests.support.servers.postgres import postgres_server
from tests.support.servers.server_process import Server

__all__ = ["Callers", "renew", "renewals"]

M, K, H = 10_000, 64, 32
_MODELS = 20
_RENEWED = "has taken over from process"
_TIMEOUT_S = 600.0
"""More than a process takes to start on a machine that is busy with other things."""


class Callers:
    """Clients that each do one thing after another, and none of it twice.

    Half of them keep their connection, the others open one for each call. A failure is an answer
    that is not a success, or a connection that ends without any.

    Args:
        url: of the service.
        clients: a thread each.
        pause: seconds between two calls of a client, at most.
        seed: of what they do.
    """

    def __init__(self, url: str, clients: int, pause: float, seed: int = 1) -> None:
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []
        self._url = url
        self._clients = clients
        self._pause = pause
        self._seed = seed
        self._stopping = threading.Event()
        space = {"name": "s", "num_parameters": M, "signature": {"num_perm": H}}
        with self._client() as http:
            http.post("/v1/spaces", json=space).raise_for_status()
            for number in range(_MODELS):
                self._put(http, number, np.random.default_rng(number)).raise_for_status()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Call for as long as the block runs."""
        threads = [
            threading.Thread(target=self._call_on, args=(number,))
            for number in range(self._clients)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def _call_on(self, number: int) -> None:
        random = np.random.default_rng((self._seed, number))
        keeps = httpx.Limits() if number % 2 else httpx.Limits(max_keepalive_connections=0)
        with self._client(limits=keeps) as http:
            while not self._stopping.wait(random.uniform(0, self._pause)):
                self._call(http, random)

    def _call(self, http: httpx.Client, random: np.random.Generator) -> None:
        model = int(random.integers(_MODELS))
        what = str(random.choice(["put", "get", "neighbors"]))
        try:
            if what == "put":
                answer = self._put(http, model, random)
            elif what == "get":
                answer = http.get(f"/v1/spaces/s/models/m{model}")
            else:
                answer = http.get("/v1/spaces/s/neighbors", params={"model": f"m{model}"})
        except httpx.HTTPError as error:
            self.failed.append(f"{what}: {type(error).__name__}: {error}")
        else:
            self.done[what] += 1
            if not answer.is_success:
                self.failed.append(f"{what}: {answer.status_code} {answer.text}")

    def _put(self, http: httpx.Client, model: int, random: np.random.Generator) -> httpx.Response:
        content = random_support(random, M, K).signature(num_perm=H).to_bytes()
        headers = {"Content-Type": SIGNATURE}
        return http.put(f"/v1/spaces/s/signatures/m{model}", content=content, headers=headers)

    def _client(self, limits: httpx.Limits | None = None) -> httpx.Client:
        kept = limits or httpx.Limits()
        return httpx.Client(base_url=self._url, timeout=60, trust_env=False, limits=kept)


def renewals(server: Server) -> int:
    """How many processes of the service have been renewed so far."""
    return server.log.read_text().count(_RENEWED)


def renew(server: Server, processes: int) -> None:
    """Send SIGHUP, and wait until so many more processes have been renewed."""
    enough = renewals(server) + processes
    server.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + _TIMEOUT_S * processes
    while renewals(server) < enough:
        assert server.process.is_alive(), server.log.read_text()[-2000:]
        assert time.monotonic() < end, server.log.read_text()[-2000:]
        time.sleep(0.05)


def measure(folder: Path, backend: Backend, restarts: int, clients: int) -> Callers:
    """Renew the two processes of a service again and again under load."""
    folder.mkdir()
    server = Server(folder, "--processes=2", "--drain-seconds=5", backend=backend).start()
    callers = Callers(server.url, clients, pause=0.02)
    with callers.running():
        while renewals(server) < restarts:
            renew(server, 2)
    assert server.stop() == 0
    return callers


def _report(name: str, restarts: int, callers: Callers) -> bool:
    print(
        f"{name}: {len(callers.failed)} of {callers.done.total()} calls failed in {restarts} "
        f"restarts on {os.cpu_count()} cores; {dict(sorted(callers.done.items()))}",
        *callers.failed[:5],
        sep="\n  ",
        flush=True,
    )
    return not callers.failed


def main() -> int:
    """Print what was counted on each database; 1 if a call failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=50, help="of processes, on each database")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--database", choices=("sqlite", "postgres"), help="this one alone")
    options = parser.parse_args()
    with postgres_server() as postgres, tempfile.TemporaryDirectory() as root:
        backends: list[Backend] = [SQLITE, PostgresBackend(postgres)]
        fine = [
            _report(
                backend.name,
                options.restarts,
                measure(Path(root) / backend.name, backend, options.restarts, options.clients),
            )
            for backend in backends
            if options.database in {None, backend.name}
        ]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
