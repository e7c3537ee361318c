"""Many long jobs of one tenant, and the webhooks and short jobs of another beside them.

``python -m tests.soak.jobs_share`` (``make soak``) enqueues 20 clusterings of 4,000 random
signatures by affinity propagation. Meanwhile another tenant stores supports and rebuilds buckets.
It fails unless each webhook arrives within 5 s and each short job ends within 15 s. Then it opens
the event streams of one tenant, which are limited, and revokes its key, which ends them.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np

from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from app.tenancy.auth.service import KeyService
from modelkin import Client, Signature
from tests.support.http_space import Space, random_support
from tests.support.servers.server_process import Server
from tests.support.servers.webhook_receiver import Receiver, receiving

M, K, H = 100_000, 1_000, 256
WEBHOOK_LIMIT_S = 5.0
SHORT_JOB_LIMIT_S = 15.0
STREAMS_END_LIMIT_S = 60.0
MAX_STREAMS = 50
_PATIENCE_S = 240.0
"""Seconds after which a webhook or a job counts as lost."""
_PAUSE_S = 1.0


def make_keys(folder: Path, url: str, *tenants: str) -> list[str]:
    """Migrate the database of a service to come, and make a key of each tenant in it."""
    folder.mkdir(parents=True, exist_ok=True)
    database = Database(url, timeout=10)
    migrate(database)
    with database.writing() as session:
        keys = [KeyService().create(session, tenant) for tenant in tenants]
    database.close()
    return keys


def revoke_key(url: str, key: str) -> None:
    """Revoke a key, as ``python -m app keys revoke`` does beside a running service."""
    database = Database(url, timeout=10)
    with database.writing() as session:
        assert KeyService().revoke(session, key)
    database.close()


def store_signatures(url: str, key: str, count: int) -> str:
    """Make a space of ``count`` random signatures, and return its name."""
    random = np.random.default_rng(1)

    def models() -> Iterator[tuple[str, Signature]]:
        for number in range(count):
            values = random.integers(0, 1 << 32, H, dtype=np.uint64).astype(np.uint32)
            signature = Signature.from_values(values, num_parameters=M, support_size=K)
            yield f"m{number:05}", signature

    with Client(url, api_key=key, idle_timeout=60) as client:
        client.ensure_space("random", num_parameters=M)
        summary = client.put_many("random", models())
        assert summary.failed == 0, summary
    return "random"


def enqueue_clusterings(http: httpx.Client, space: str, count: int) -> list[str]:
    """Enqueue so many clusterings by affinity propagation, each of another seed."""
    ids = []
    for seed in range(count):
        body = {"algorithm": "affinity_propagation", "seed": seed}
        answer = http.post(f"/v1/spaces/{space}/clusterings", json=body)
        assert answer.status_code == 202, answer.text
        ids.append(answer.json()["id"])
    return ids


class Bystander:
    """A tenant that stores a support and rebuilds its buckets, again and again.

    Attributes:
        webhooks: seconds from each stored support to its webhook.
        jobs: seconds from each request of a short job to its end.
    """

    def __init__(self, http: httpx.Client, receiver: Receiver) -> None:
        self._http = http
        self._receiver = receiver
        self._random = np.random.default_rng(2)
        self._space = Space(http, 10_000)
        body = {"url": f"{receiver.url}/ok", "events": ["support.stored"]}
        assert http.post("/v1/subscriptions", json=body).status_code == 201
        self.webhooks: list[float] = []
        self.jobs: list[float] = []

    def once(self) -> None:
        """Store one support and wait for its webhook, while a short job runs."""
        began = time.monotonic()
        wanted = len(self._receiver.requests) + 1
        self._space.put(f"m{wanted}", random_support(self._random, 10_000, 100))
        job = self._http.post(self._space.path("jobs"), json={"kind": "rebuild_buckets"}).json()
        webhook = short = None
        while (webhook is None or short is None) and time.monotonic() - began < _PATIENCE_S:
            time.sleep(0.05)
            if webhook is None and len(self._receiver.requests) >= wanted:
                webhook = self._receiver.requests[wanted - 1].at - began
            if short is None and self._state(job["id"]) == "succeeded":
                short = time.monotonic() - began
        self.webhooks.append(_PATIENCE_S if webhook is None else webhook)
        self.jobs.append(_PATIENCE_S if short is None else short)

    def _state(self, job: str) -> str:
        state: str = self._http.get(f"/v1/jobs/{job}").json()["state"]
        return state


def measure_streams(
    http: httpx.Client, job: str, count: int, revoke: Callable[[], None]
) -> tuple[int, float]:
    """How many of ``count`` streams open, and the seconds until all have ended after ``revoke``."""
    ended: list[float] = []

    def read(answer: httpx.Response) -> None:
        with contextlib.suppress(httpx.HTTPError):
            for _ in answer.iter_bytes():
                pass
            ended.append(time.monotonic())

    with ExitStack() as streams:
        path = f"/v1/jobs/{job}/events"
        answers = [streams.enter_context(http.stream("GET", path)) for _ in range(count)]
        opened = [answer for answer in answers if answer.status_code == 200]
        for answer in opened:
            threading.Thread(target=read, args=[answer], daemon=True).start()
        revoke()
        began = time.monotonic()
        while len(ended) < len(opened) and time.monotonic() - began < 2 * STREAMS_END_LIMIT_S:
            time.sleep(0.2)
        seconds = max(ended) - began if len(ended) == len(opened) else float("inf")
    return len(opened), seconds


def _connect(url: str, key: str) -> httpx.Client:
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, limits=limits)


def run(server: Server, long_jobs: int, models: int, minutes: float) -> bool:
    """Print what the bystander waited for; whether the limits were kept."""
    keys = make_keys(server.folder, server.database_url, "labs", "small")
    server.start()
    with (
        _connect(server.url, keys[0]) as labs,
        _connect(server.url, keys[1]) as small,
        receiving() as receiver,
    ):
        space = store_signatures(server.url, keys[0], models)
        bystander = Bystander(small, receiver)
        bystander.once()
        alone = bystander.webhooks.pop(), bystander.jobs.pop()
        print(f"alone: webhook {alone[0]:.2f} s, short job {alone[1]:.2f} s")
        jobs = enqueue_clusterings(labs, space, long_jobs)
        end = time.monotonic() + 60 * minutes
        while not bystander.jobs or time.monotonic() < end:
            time.sleep(_PAUSE_S)
            bystander.once()
        kept = _within("webhook", bystander.webhooks, WEBHOOK_LIMIT_S)
        kept &= _within("short job", bystander.jobs, SHORT_JOB_LIMIT_S)
        states = Counter(job["state"] for job in labs.get("/v1/jobs").json()["items"])
        print(f"the long jobs: {dict(states)}; memory {server.memory / 1e6:.0f} MB")
        opened, seconds = measure_streams(
            labs, jobs[-1], MAX_STREAMS + 10, lambda: revoke_key(server.database_url, keys[0])
        )
        print(f"{opened} of {MAX_STREAMS + 10} streams opened; they ended {seconds:.0f} s after")
        return kept and opened == MAX_STREAMS and seconds <= STREAMS_END_LIMIT_S


def _within(what: str, seconds: list[float], limit: float) -> bool:
    """Print how long each took, and whether all kept the limit."""
    worst, median = max(seconds), float(np.median(seconds))
    print(f"{what}: {len(seconds)} times, median {median:.2f} s, worst {worst:.2f} s of {limit:g}")
    return worst <= limit


def main() -> int:
    """1 if a limit was not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--long-jobs", type=int, default=20)
    parser.add_argument("--models", type=int, default=4000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modelkin-jobs-") as name:
        server = Server(Path(name), "--auth=required", "--egress-allow=127.0.0.1")
        try:
            kept = run(server, options.long_jobs, options.models, options.minutes)
        finally:
            server.kill()
    print("kept" if kept else "NOT KEPT")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
