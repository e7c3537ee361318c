"""What a bystander notices while another tenant asks much: four loads, each legitimate.

A bystander asks for one small model of its own and for ``/livez`` in turn, every 50 ms: alone for
some seconds first, and then beside each load. ``python -m tests.soak.bystander`` prints a line for
each (``make soak``), and exits with 1 where a bystander was refused or waited longer than it may.
"""

from __future__ import annotations

import argparse
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from modelkin import Support
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.http_space import SIGNATURE, SUPPORT, random_support
from tests.support.hub_payloads import hf_headers, hf_payload
from tests.support.servers.server_process import Server

__all__ = ["Load", "Quiet", "main"]

CROWD, BYSTANDER = "crowd", "bystander"
SECRET = "what only the hub knows"
_PAUSE_S = 0.05
_MAX_P99_S, _MAX_RATIO, _MAX_MEMORY = 0.25, 4.0, 500 << 20
"""The bounds on a bystander's 99th percentile, against its quiet one too, and on more memory."""


@dataclass
class Watch:
    """What a bystander saw.

    Attributes:
        seconds: of its requests.
        refused: the statuses of those that were not answered 200.
        memory: the most that the service held, in bytes.
    """

    seconds: list[float] = field(default_factory=list)
    refused: Counter[int | str] = field(default_factory=Counter)
    memory: int = 0

    def percentile(self, share: float) -> float:
        return float(np.quantile(self.seconds, share)) if self.seconds else 0.0


class Load:
    """A service of two tenants, and what the crowd asks.

    Args:
        server: runs.
        models: of the space whose graph is asked, with signatures alone.
        supports: of the space whose matrix is asked.
    """

    def __init__(self, server: Server, *, models: int = 8000, supports: int = 300) -> None:
        self.server = server
        self.keys = {name: new_key(server, "--tenant", name) for name in (CROWD, BYSTANDER)}
        self._models, self._supports = models, supports

    def client(self, tenant: str) -> httpx.Client:
        """A client of a tenant; each worker of a crowd has one."""
        return httpx.Client(
            base_url=self.server.url,
            headers={"Authorization": f"Bearer {self.keys[tenant]}"},
            timeout=120,
            trust_env=False,
        )

    def fill(self) -> None:
        """Store what is asked about."""
        rng = np.random.default_rng(1)
        with self.client(BYSTANDER) as http:
            _make_space(http, "s", 1000)
            _put_signature(http, "m", rng)
        with self.client(CROWD) as http:
            _make_space(http, "many", 10_000)
            _make_space(http, "large", 2_000_000)
            signatures = [random_support(rng, 10_000, 200).signature() for _ in range(200)]
            lines: list[bytes] = []
            for number in range(self._models):
                values = signatures[number % 200].values.copy()
                changed = rng.random(values.size) < 0.3
                values[changed] = rng.integers(0, 2**32, int(changed.sum()), dtype=values.dtype)
                lines.append(_line(f"m{number}", values.tolist()))
            for at in range(0, len(lines), 1000):
                _put_lines(http, b"".join(lines[at : at + 1000]))
            for number in range(self._supports):
                chosen = np.flatnonzero(rng.random(2_000_000) < 0.05)
                http.put(
                    f"/v1/spaces/large/supports/m{number}",
                    content=Support.from_indices(chosen, 2_000_000).to_bytes(),
                    headers={"Content-Type": SUPPORT},
                ).raise_for_status()

    # --- loads --------------------------------------------------------------------------------

    def graphs(self) -> Counter[int]:
        """24 graphs of all models at once."""
        return self._ask(24, lambda http, _: http.get("/v1/spaces/many/graph", params={"k": 20}))

    def matrices(self) -> Counter[int]:
        """24 matrices at once."""
        names = [f"m{number}" for number in range(self._supports)]
        path = "/v1/spaces/large/similarity"
        return self._ask(24, lambda http, _: http.post(path, json={"models": names}))

    def writers(self, seconds: float = 8.0) -> Counter[int]:
        """24 writers, while another program holds the write lock."""

        def put(http: httpx.Client, number: int) -> httpx.Response:
            return _put_signature(http, f"w{number}", np.random.default_rng(number), "many", 10_000)

        with self._locked(seconds):
            return self._ask(24, put)

    def deliveries(self, seconds: float = 15.0) -> Counter[int]:
        """40 deliveries of a hub, while another program holds the write lock."""
        source = {"kind": "huggingface", "space": "many", "secret": SECRET, "poll_seconds": None}
        with self.client(CROWD) as http:
            hook = http.post("/v1/sources", json=source).raise_for_status().json()["hook"]

        def deliver(http: httpx.Client, number: int) -> httpx.Response:
            payload, headers = hf_payload(f"org/m{number}"), hf_headers(SECRET, f"d{number}")
            return http.post(hook, json=payload, headers=headers)

        with self._locked(seconds):
            return self._ask(40, deliver)

    def _ask(self, many: int, ask: Callable[[httpx.Client, int], httpx.Response]) -> Counter[int]:
        with ExitStack() as stack, ThreadPoolExecutor(many) as pool:
            clients = [stack.enter_context(self.client(CROWD)) for _ in range(many)]
            answers = pool.map(lambda number: ask(clients[number], number).status_code, range(many))
            return Counter(answers)

    @contextmanager
    def _locked(self, seconds: float) -> Iterator[None]:
        """Hold the write lock of the database for so long, from now on."""
        held = threading.Event()

        def hold() -> None:
            other = sqlite3.connect(self.server.folder / "m.db", isolation_level=None, timeout=30)
            other.execute("BEGIN IMMEDIATE")
            held.set()
            time.sleep(seconds)
            other.execute("ROLLBACK")
            other.close()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        yield
        holder.join()


class Quiet:
    """A bystander in a process of its own, which shares nothing with the load but the service.

    Args:
        load: whose service it asks.
    """

    def __init__(self, load: Load) -> None:
        self._load = load

    def during(self, load: Callable[[], Counter[int]]) -> tuple[Watch, Counter[int], float]:
        """What it sees beside a load, what that was answered, and how long that took."""
        with self._watching() as watch:
            began = time.monotonic()
            answered = load()
            took = time.monotonic() - began
        return watch, answered, took

    def alone(self, seconds: float) -> Watch:
        """What it sees without one."""
        with self._watching() as watch:
            time.sleep(seconds)
        return watch

    @contextmanager
    def _watching(self) -> Iterator[Watch]:
        watch, over = Watch(), threading.Event()
        arguments = self._load.server.url, self._load.keys[BYSTANDER]
        asking = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.bystander", "--watch", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert asking.stdout is not None
        assert asking.stdout.readline() == "ready\n"
        sizes = threading.Thread(target=self._watch_memory, args=(watch, over))
        sizes.start()
        try:
            yield watch
        finally:
            over.set()
            said, _ = asking.communicate("over\n")
            sizes.join()
            for line in said.splitlines():
                seconds, status = line.split()
                watch.seconds.append(float(seconds))
                if status != "200":
                    watch.refused[status] += 1

    def _watch_memory(self, watch: Watch, over: threading.Event) -> None:
        while not over.wait(0.1):
            watch.memory = max(watch.memory, self._load.server.memory)


def ask_until_over(url: str, key: str) -> None:
    """Be the bystander until a line comes; print the seconds and the status of each request."""
    over = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    headers = {"Authorization": f"Bearer {key}"}
    paths = "/v1/spaces/s/models/m", "/livez"
    seen: list[str] = []
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
        for path in paths:
            http.get(path)
        _say("ready")
        while not over.is_set():
            for path in paths:
                began = time.monotonic()
                try:
                    status = str(http.get(path).status_code)
                except httpx.HTTPError as error:
                    status = type(error).__name__
                seen.append(f"{time.monotonic() - began:.6f} {status}")
                time.sleep(_PAUSE_S)
    _say("\n".join(seen))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _make_space(http: httpx.Client, name: str, m: int) -> None:
    http.post("/v1/spaces", json={"name": name, "num_parameters": m}).raise_for_status()


def _put_signature(
    http: httpx.Client, name: str, rng: np.random.Generator, space: str = "s", m: int = 1000
) -> httpx.Response:
    return http.put(
        f"/v1/spaces/{space}/signatures/{name}",
        content=random_support(rng, m, 50).signature().to_bytes(),
        headers={"Content-Type": SIGNATURE},
    )


def _line(name: str, values: Sequence[int]) -> bytes:
    joined = ",".join(map(str, values))
    return (
        f'{{"model":"{name}","signature":{{"scheme":"affine32","num_perm":{len(values)},"seed":1,'
        f'"support_size":200,"values":[{joined}]}}}}\n'
    ).encode()


def _put_lines(http: httpx.Client, lines: bytes) -> None:
    answer = http.post(
        "/v1/spaces/many/batch", content=lines, headers={"Content-Type": "application/jsonl"}
    )
    assert answer.text.count("created") == lines.count(b"\n"), answer.text[:500]


def main() -> int:
    """Run the loads; the exit code is 1 where a bound is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="of all loads together")
    parser.add_argument("--only", help="one of the loads")
    parser.add_argument("--watch", nargs=2, metavar=("URL", "KEY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch:
        ask_until_over(*options.watch)
        return 0
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), "--auth=required", "--embedded-worker=off").start()
        try:
            load = Load(server)
            load.fill()
            bystander = Quiet(load)
            alone = bystander.alone(max(5.0, options.minutes * 5))
            base = server.memory
            quiet = alone.percentile(0.99)
            _say(f"alone: {len(alone.seconds)} requests, p99 {quiet * 1000:.0f} ms")
            loads = load.graphs, load.matrices, load.writers, load.deliveries
            end = time.monotonic() + 60 * options.minutes
            while True:
                for each in loads:
                    if options.only in (None, each.__name__):
                        failed |= _report(each, bystander, quiet, base)
                if time.monotonic() > end:
                    break
        finally:
            server.kill()
    return int(failed)


def _report(load: Callable[[], Counter[int]], bystander: Quiet, quiet: float, base: int) -> bool:
    """Print a line about a load; whether a bound is not met."""
    watch, answered, took = bystander.during(load)
    p99, more = watch.percentile(0.99), watch.memory - base
    bad = bool(watch.refused) or p99 > max(_MAX_RATIO * quiet, 0) or p99 > _MAX_P99_S
    bad |= more > _MAX_MEMORY
    _say(
        f"{load.__name__}: {took:.1f} s, answered {dict(answered)}; bystander: "
        f"{len(watch.seconds)} requests, refused {dict(watch.refused)}, p50 "
        f"{watch.percentile(0.5) * 1000:.0f}, p99 {p99 * 1000:.0f} ms "
        f"({p99 / max(quiet, 1e-9):.1f} times quiet), worst {watch.percentile(1.0) * 1000:.0f} ms; "
        f"memory {more / 2**20:+.0f} MB{'  <- TOO MUCH' if bad else ''}",
    )
    return bad


if __name__ == "__main__":
    sys.exit(main())
