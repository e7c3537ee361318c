"""Postgres and Redis behind a network that fails: waits end, answers are right or say otherwise."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest
from sqlalchemy.engine import make_url

from tests.support.backends import PostgresBackend
from tests.support.declared_problems import checked
from tests.support.faults.asking import Asking
from tests.support.faults.ledger import WRITERS, check, make_space
from tests.support.faults.proxy import Fault, Proxy, proxy, schedule
from tests.support.fixtures import Figure
from tests.support.http_space import Space, random_support, ranking, related, true_neighbors
from tests.support.repetitions import repetitions
from tests.support.servers.postgres import Postgres
from tests.support.servers.redis_server import RedisProcess
from tests.support.servers.server_process import Server
from tests.support.write_log import WriteLog, finish, start_writers, wait_for_writes

SEED = 1906
PHASE_S = repetitions(5, few=1)
"""Of each fault; in a soak longer than the service waits for a Postgres that is silent."""
MOST_S = repetitions(8, few=30)
"""What a request may take: in a soak three timeouts of a silent Postgres, the connection before
them, and a little; else also what a machine under load adds.
"""
M, K = 10_000, 300
PATHS = "/v1/spaces/s", "/v1/spaces/s/models?limit=3", "/readyz"
"""What reads the database."""


class Proxied(PostgresBackend):
    """A backend whose databases are reached through a proxy."""

    def __init__(self, server: Postgres, port: int) -> None:
        super().__init__(server)
        self._port = port

    def url(self, folder: Path) -> str:
        url = make_url(super().url(folder)).set(host="127.0.0.1", port=self._port, query={})
        return url.render_as_string(hide_password=False)


@pytest.fixture
def before_postgres(postgres: Postgres) -> Iterator[Proxy]:
    """A proxy before the Postgres server that all tests share."""
    with proxy(postgres.data / ".s.PGSQL.5432", SEED) as running:
        yield running


@pytest.fixture
def service(before_postgres: Proxy, postgres: Postgres, tmp_path: Path) -> Iterator[Server]:
    """A service that reaches its database through it, and waits for a second."""
    backend = Proxied(postgres, before_postgres.port)
    running = Server(tmp_path, "--database-timeout-seconds=1", backend=backend).start()
    yield running
    running.kill()


def test_a_failing_network_before_Postgres(
    before_postgres: Proxy, service: Server, figure: Figure
) -> None:
    """Whatever it does, requests end in time with an answer or a 503 that says why, what was
    acknowledged is there, and once it is over all is well.
    """
    make_space(service)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    answers: Counter[int] = Counter()
    longest, phases = 0.0, repetitions(100, few=5)
    for number, fault in enumerate(itertools.islice(schedule(SEED), phases)):
        writers = start_writers(service.url, "s", write_logs, number, through_faults=True)
        wait_for_writes(write_logs, more=5)
        asking = Asking(service.url, PATHS)
        asking.start()
        with before_postgres.failing(fault):
            time.sleep(PHASE_S)
        refused = finish(writers)
        asking.stop()
        assert all(": 503 " in refusal for refusal in refused), refused
        assert asking.answers.keys() <= {200, 503}, (fault, asking.answers)
        assert [] == asking.bodiless
        answers += asking.answers
        longest = max(longest, asking.longest)
        check(service, "s", write_logs)
    assert longest < MOST_S
    assert 200 == httpx.get(f"{service.url}/readyz").status_code
    writes = sum(log.writes for log in write_logs)
    figure(
        f"{phases} phases, {before_postgres.hits:,} hits, {writes:,} writes acknowledged, 0 lost; "
        f"reads answered {dict(answers)}, the longest in {longest:.1f} s, seed {SEED}"
    )


def wait_for_buckets(space: Space) -> None:
    """Until buckets answer a search."""
    end = time.monotonic() + 30
    while space.neighbors("base", method="lsh")["degraded"]:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_failing_network_before_Redis(
    single: RedisProcess, tmp_path: Path, figure: Figure
) -> None:
    """Whatever it does, a search finds the kin that there are, in time, and says where a scan had
    to find them; once it is over, buckets answer again.
    """
    rng = np.random.default_rng(SEED)
    base = random_support(rng, M, K)
    kin = {f"kin{i}": related(rng, base, share) for i, share in enumerate((0.85, 0.9, 0.95))}
    models = {"base": base, **kin} | {f"far{i}": random_support(rng, M, K) for i in range(20)}
    answers: Counter[str] = Counter()
    longest, phases = 0.0, repetitions(200, few=5)
    with proxy(("127.0.0.1", single.port), SEED) as before_redis:
        server = Server(tmp_path, f"--redis-url=redis://127.0.0.1:{before_redis.port}").start()
        with checked(httpx.Client(base_url=server.url, timeout=60, trust_env=False)) as http:
            space = Space(http, M)
            space.put_all(models)
            wait_for_buckets(space)
            answers["lsh"] += 1
            for fault in itertools.islice(schedule(SEED), phases):
                with before_redis.failing(fault):
                    end = time.monotonic() + PHASE_S
                    while time.monotonic() < end:
                        began = time.monotonic()
                        answer = space.neighbors("base", method="lsh", min_similarity=0.7)
                        longest = max(longest, time.monotonic() - began)
                        assert true_neighbors(base, kin) == ranking(answer), fault
                        answers[answer["method"] + answer["degraded"] * ", degraded"] += 1
                        space.put("far0", random_support(rng, M, K))
                    assert {"lsh", "scan, degraded"} >= answers.keys()
            wait_for_buckets(space)
        assert 0 == server.stop()
    assert longest < MOST_S
    assert {"lsh", "scan, degraded"} == answers.keys()
    figure(
        f"{phases} phases, {before_redis.hits:,} hits; searches {dict(answers)}, the longest in "
        f"{longest:.1f} s, 0 wrong, seed {SEED}"
    )


def test_a_request_that_a_network_repeats_changes_once(
    sqlite_server: Server, figure: Figure
) -> None:
    """A PUT with If-Match that arrives once more, late, is refused then: the newer state stays."""
    target = httpx.URL(sqlite_server.url)
    assert target.port is not None
    rng = np.random.default_rng(SEED)
    with (
        proxy((target.host, target.port), SEED) as repeating,
        httpx.Client(base_url=sqlite_server.url, trust_env=False) as http,
    ):
        space = Space(http, M)
        space.put("a", random_support(rng, M, K))
        repeated = f"http://127.0.0.1:{repeating.port}{space.path('supports', 'a')}"
        times = repetitions(200, few=5)
        with repeating.failing(Fault("replay")):
            for _ in range(times):
                support = random_support(rng, M, K)
                headers = {"If-Match": space.etag("a"), "Connection": "close"}
                headers["Content-Type"] = "application/vnd.modelkin.support"
                put = httpx.put(repeated, content=support.to_bytes(), headers=headers)
                assert 200 == put.status_code
                space.put("a", later := random_support(rng, M, K))
        assert later.digest == space.model("a")["digest"]
        assert 1 + 2 * times == space.model("a")["revision"]
        assert repeating.hits == times
    figure(f"{times} requests sent twice, {times} changes by them, seed {SEED}")


@pytest.mark.parametrize("kind", ["latency", "stall", "reset", "cut", "refuse", "replay"])
def test_each_fault_does_what_it_says(kind: str) -> None:
    """A client of a plain server notices each of them, and nothing when it is over."""
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 1000)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    with proxy(("127.0.0.1", server.server_port)) as running:
        url = f"http://127.0.0.1:{running.port}/"

        def get(timeout: float = 10) -> float | type[Exception]:
            began = time.monotonic()
            try:
                assert 1000 == len(httpx.get(url, timeout=timeout, trust_env=False).content)
            except httpx.HTTPError as error:
                return type(error)
            return time.monotonic() - began

        with running.failing(Fault(kind, seconds=0.1)):  # type: ignore[arg-type]
            seen = get(0.3 if kind == "stall" else 10)
        if kind == "latency":
            assert isinstance(seen, float)
            assert seen > 0.1
        elif kind == "stall":
            assert seen is httpx.ReadTimeout
        elif kind != "replay":
            assert isinstance(seen, type), seen
        assert isinstance(get(), float)
        if kind == "replay":
            end = time.monotonic() + 10
            while len(received) < 3 and time.monotonic() < end:
                time.sleep(0.01)
            assert 3 == len(received)
        assert running.hits > 0
    server.shutdown()
    server.server_close()
