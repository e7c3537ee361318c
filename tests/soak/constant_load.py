"""A gentle load on a constant number of models: what grows?

``python -m tests.soak.constant_load --minutes 30`` (``make soak``) replaces, deletes and asks, with
a receiver of webhooks, jobs and graphs beside. It fails if the memory grows by more than 1 MB a
minute in the second half, if a file other than the database grows, if more rows stay than quotas
say, if the receiver lacks the event of any stored support, if deliveries are deleted before they
are sent, or if anything is answered with 500 or more. It prints how many events lost their
comparison to the quota of events, which is small here: more is written than can be compared.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import numpy as np

from modelkin import Support
from tests.support.http_space import SUPPORT, random_support
from tests.support.servers.server_process import Server
from tests.support.servers.webhook_receiver import Receiver, receiving

__all__ = ["Load", "Samples"]

M, K = 200_000, 2_000
_MODELS: Final = 1_500
_QUOTA: Final = 1_500
"""Events and deliveries that stay: few, so that a short soak reaches them, too."""
_GRACE_S: Final = 30
_FLAGS: Final = (
    "--egress-allow=127.0.0.1",
    f"--quota-events={_QUOTA}",
    f"--quota-deliveries={_QUOTA}",
    f"--blob-grace-seconds={_GRACE_S}",
    "--maintenance-interval-seconds=10",
)
_MIB: Final = 1 << 20
_MAX_MEMORY_SLOPE: Final = 1.0
"""MiB a minute, in the second half."""
_LOST: Final = re.compile(r"(\d+) of the (events|deliveries) of .+ were still waiting")
"""What the log says of what was deleted too early."""
_LAST_EVENTS_S: Final = 60.0
"""Seconds that the last events have for their way."""
_ROUNDING: Final = 2 * _MIB
"""How much more a file may take in the last quarter than in the one before: it is sampled."""
_MAX_DATABASE_GROWTH: Final = 3 * _QUOTA * 8 * 1024
"""Bytes of as many events, deliveries and jobs as may stay, in the last quarter."""
_MAX_LOG: Final = 64 * _MIB
"""The write-ahead log comes and goes: it is cut in each round of the clean-up."""


class Load:
    """Clients that each do one thing again and again, with a pause, until the end.

    Args:
        url: of the service.
        seed: of what they do.
    """

    def __init__(self, url: str, seed: int = 1) -> None:
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []
        self.stored: set[tuple[str, int]] = set()
        """Names and revisions of the supports that were acknowledged under a subscription."""
        self._url = url
        self._random = np.random.default_rng(seed)
        self._names = [f"org/m{number}" for number in range(_MODELS)]
        self._next = _MODELS
        self._base = random_support(self._random, M, K)
        self._stopping = threading.Event()

    def fill(self) -> None:
        """Make the space and its models."""
        with self._client() as http:
            self._ask(http, "space", "POST", "/v1/spaces", json={"name": "s", "num_parameters": M})
            for name in self._names:
                self._put(http, name, "fill")

    def subscribe(self, receiver: Receiver) -> None:
        """Have the receiver get every event."""
        body = {"url": f"{receiver.url}/ok", "events": ["support.stored", "neighbors.changed"]}
        with self._client() as http:
            self._ask(http, "subscription", "POST", "/v1/subscriptions", json=body)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Go on for as long as the block runs."""
        clients = [
            threading.Thread(target=self._again, args=client)
            for client in (
                (self._write, 0.05),
                (self._write, 0.05),
                (self._read, 0.05),
                (self._graph, 5.0),
                (self._graph, 5.0),
                (self._job, 20.0),
            )
        ]
        for client in clients:
            client.start()
        try:
            yield
        finally:
            self._stopping.set()
            for client in clients:
                client.join()

    def _again(self, act: Callable[[httpx.Client], None], pause: float) -> None:
        with self._client() as http:
            while not self._stopping.wait(pause):
                try:
                    act(http)
                except httpx.HTTPError as error:
                    self.failed.append(f"{type(error).__name__}: {error}")

    def _write(self, http: httpx.Client) -> None:
        place, chance = int(self._random.integers(_MODELS)), self._random.random()
        name = self._names[place]
        if chance < 0.6:
            self._put(http, name, "replace")
        elif chance < 0.8:
            self._next += 1
            self._names[place] = f"org/m{self._next}"
            self._ask(http, "delete", "DELETE", f"/v1/spaces/s/models/{name}")
            self._put(http, self._names[place], "create")
        else:
            tags = {"tags": [f"t{self._next % 7}"]}
            self._ask(http, "tag", "PATCH", f"/v1/spaces/s/models/{name}", json=tags)

    def _read(self, http: httpx.Client) -> None:
        name = self._names[int(self._random.integers(_MODELS))]
        path = "/v1/spaces/s/neighbors"
        self._ask(http, "neighbors", "GET", path, params={"model": name})
        self._ask(http, "list", "GET", "/v1/spaces/s/models", params={"limit": "50"})

    def _graph(self, http: httpx.Client) -> None:
        self._ask(http, "graph", "GET", "/v1/spaces/s/graph", params={"k": "10"})

    def _job(self, http: httpx.Client) -> None:
        self._ask(http, "job", "POST", "/v1/spaces/s/jobs", json={"kind": "rebuild_buckets"})

    def _put(self, http: httpx.Client, name: str, what: str) -> None:
        kept = self._random.choice(self._base.indices, K // 2, replace=False)
        more = self._random.choice(M, K // 2, replace=False)
        support = Support.from_indices(np.union1d(kept, more), M)
        headers = {"Content-Type": SUPPORT}
        path = f"/v1/spaces/s/supports/{name}"
        answer = self._ask(http, what, "PUT", path, content=support.to_bytes(), headers=headers)
        if answer.is_success and what != "fill":
            self.stored.add((name, answer.json()["revision"]))

    def _ask(
        self, http: httpx.Client, what: str, method: str, path: str, **more: object
    ) -> httpx.Response:
        answer = http.request(method, path, **more)  # type: ignore[arg-type]
        self.done[what] += 1
        # Two writers may choose one model: what the other has deleted is a 404.
        if answer.status_code >= 500 or (answer.status_code >= 400 and answer.status_code != 404):
            self.failed.append(f"{what}: {answer.status_code} {answer.text}")
        return answer

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, timeout=60, trust_env=False)


class Told:
    """The events that a receiver got, counted."""

    def __init__(self, receiver: Receiver) -> None:
        self.stored: Counter[tuple[str, int]] = Counter()
        self._receiver = receiver

    def take(self) -> None:
        """Count what came since the last time."""
        count = len(self._receiver.requests)
        for request in self._receiver.requests[:count]:
            event = json.loads(request.body)
            if event["type"] == "support.stored":
                self.stored[event["data"]["model"], event["data"]["revision"]] += 1
        del self._receiver.requests[:count]

    def missing(self, load: Load) -> int:
        """How many stored supports the receiver has no event of, once the last ones are here."""
        end = time.monotonic() + _LAST_EVENTS_S
        while (missing := len(load.stored - self.stored.keys())) and time.monotonic() < end:
            time.sleep(0.5)
            self.take()
        return missing


@dataclass
class Samples:
    """Memory and files of a service, sampled again and again."""

    server: Server
    at: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    files: dict[str, list[int]] = field(default_factory=dict)

    def take(self) -> None:
        """Take one sample."""
        self.at.append(time.monotonic())
        self.memory.append(self.server.memory)
        now = self._on_disk()
        for name in {*self.files, *now}:
            known = self.files.setdefault(name, [0] * (len(self.at) - 1))
            known.append(now.get(name, 0))

    def tenths(self, values: list[int]) -> list[int]:
        """The value at the end of each tenth of the time."""
        return [values[len(self.at) * (n + 1) // 10 - 1] for n in range(10)]

    def slope(self) -> float:
        """MiB a minute by which the memory grew in the second half, by least squares."""
        half = len(self.at) // 2
        minutes = (np.array(self.at[half:]) - self.at[half]) / 60
        return float(np.polyfit(minutes, np.array(self.memory[half:]) / _MIB, 1)[0])

    def grown(self) -> dict[str, int]:
        """How much more each file took in the last quarter than in the one before, at most."""
        quarter = len(self.at) // 4
        return {
            name: max(sizes[-quarter:]) - max(sizes[-2 * quarter : -quarter])
            for name, sizes in self.files.items()
        }

    def _on_disk(self) -> dict[str, int]:
        """Bytes on the disk of each file; those of supports and of sketches together."""
        found: Counter[str] = Counter()
        for path in self.server.folder.rglob("*"):
            try:
                if path.is_file() and path != self.server.log:
                    parts = path.relative_to(self.server.folder).parts
                    found[parts[0]] += path.stat().st_blocks * 512
            except FileNotFoundError:
                continue
        return dict(found)


def _rows(server: Server) -> dict[str, int]:
    """The rows of each table of the history."""
    with closing(sqlite3.connect(server.folder / "m.db", timeout=30)) as database:
        tables = ("models", "events", "webhook_deliveries", "jobs", "revisions", "released_blobs")
        counts = (
            database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables
        )
        return dict(zip(tables, counts, strict=True))


def _lost(server: Server) -> Counter[str]:
    """How many events and deliveries were deleted while they waited."""
    lost = Counter[str]()
    for number, what in _LOST.findall(server.log.read_text()):
        lost[what] += int(number)
    return lost


def _findings(samples: Samples, load: Load, rows: dict[str, int]) -> list[str]:
    """What should not be."""
    slope = samples.slope()
    found = [f"failed: {failure}" for failure in load.failed[:10]]
    if slope > _MAX_MEMORY_SLOPE:
        found.append(f"memory grows by {slope:.2f} MiB a minute")
    if (log := max(samples.files["m.db-wal"])) > _MAX_LOG:
        found.append(f"the write-ahead log took {log / _MIB:.1f} MiB")
    if (grown := samples.grown()["m.db"]) > _MAX_DATABASE_GROWTH:
        found.append(f"the database grows: {grown / _MIB:.1f} MiB more in the last quarter")
    for name, grown in samples.grown().items():
        if grown > _ROUNDING and name not in {"m.db", "m.db-wal"}:
            found.append(f"{name} grows: {grown / _MIB:.1f} MiB more in the last quarter")
    if unsent := _lost(samples.server)["deliveries"]:
        found.append(f"{unsent} deliveries were deleted before they were sent")
    most = 1.5 * _QUOTA + 1_000  # with what comes between two rounds of the clean-up
    found += [
        f"{rows[table]} rows of {table} stay, and {_QUOTA} may"
        for table in ("events", "webhook_deliveries", "jobs")
        if rows[table] > most
    ]
    return found


def main() -> int:
    """Print what was done and what grew; 1 if anything did that should not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes: float = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as root, receiving() as receiver:
        server = Server(Path(root), *_FLAGS).start()
        load, samples, told = Load(server.url), Samples(server), Told(receiver)
        load.fill()
        load.subscribe(receiver)
        end = time.monotonic() + 60 * minutes
        with load.running():
            while time.monotonic() < end:
                time.sleep(min(5.0, 60 * minutes / 40))
                told.take()
                samples.take()
        missing = told.missing(load)
        rows = _rows(server)
        assert server.stop() == 0
        found, lost = _findings(samples, load, rows), _lost(server)
        if missing:
            found.append(f"{missing} of {len(load.stored)} stored supports sent no event")
    print(f"{minutes:g} minutes: {dict(load.done)}; rows {rows}")
    twice = sum(count > 1 for count in told.stored.values())
    print(
        f"events of {len(load.stored)} stored supports: {missing} missing, {twice} more than "
        f"once, {lost['events']} without a comparison"
    )
    print(
        f"memory {samples.memory[0] / _MIB:.0f} -> {samples.memory[-1] / _MIB:.0f} MiB, "
        f"{samples.slope():+.2f} MiB a minute in the second half"
    )
    for name, sizes in (("memory", samples.memory), ("m.db", samples.files["m.db"])):
        tenths = (f"{size / _MIB:.0f}" for size in samples.tenths(sizes))
        print(f"  {name} at each tenth: {', '.join(tenths)} MiB")
    for name, sizes in sorted(samples.files.items()):
        print(f"  {name:16} {sizes[0] / _MIB:7.1f} -> {sizes[-1] / _MIB:7.1f} MiB")
    for line in found:
        print(f"FOUND {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
