"""Changes that are read back at once, while buckets are rebuilt and another process takes the lock.

``python -m tests.soak.reads_see_writes`` (``make soak``) runs a service on SQLite with 3,000 models
for 10 minutes. A job rebuilds the buckets of their space again and again, and a foreign connection
holds the write lock for 0.7 s every 2 s, which is longer than the buckets wait for it. Each client
changes models of its own and reads each change back. It fails if a read is stale, or if a request
is refused before ``MODELKIN_DATABASE_TIMEOUT_SECONDS`` are over.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from modelkin import Client, Signature
from modelkin.types.spaces import SignatureSpec
from tests.support.http_space import SIGNATURE, random_support
from tests.support.servers.server_process import Server

M, K, H = 10_000, 64, 64
MODELS, CLIENTS = 3_000, 4
TIMEOUT_S = 10.0
_LOCKED_S, _LOCK_EVERY_S = 0.7, 2.0
_ENDED = {"succeeded", "failed", "cancelled"}


class Tally:
    """What happened, counted by several threads."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.stale: list[str] = []
        self.refused: list[float] = []
        """After how many seconds each request was refused."""

    @property
    def refused_early(self) -> list[float]:
        return [after for after in self.refused if after < 0.95 * TIMEOUT_S]


class Changer:
    """A client that changes a model of its own, and reads each change back.

    Args:
        http: of the service.
        number: of the client.
        tally: where it counts.
    """

    def __init__(self, http: httpx.Client, number: int, tally: Tally) -> None:
        self._http = http
        self._random = np.random.default_rng(number)
        self._name = f"own/{number}"
        self._tally = tally
        self._done = 0

    def step(self) -> None:
        """Store a signature, tag it, delete it: a read after each."""
        self._done += 1
        tag = f"t{self._done}"
        signature = random_support(self._random, M, K).signature(num_perm=H)
        if self._change("PUT", "signatures", content=signature.to_bytes(), headers=_TYPE):
            self._expect("a stored model", lambda answer: answer.status_code == 200)
        if self._change("PATCH", "models", json={"tags": [tag]}):
            self._expect(
                "a tag",
                lambda answer: answer.status_code == 200 and answer.json()["tags"] == [tag],
            )
        if self._change("DELETE", "models"):
            self._expect("a deletion", lambda answer: answer.status_code == 404)

    def _change(self, method: str, kind: str, **request: Any) -> bool:
        """Whether the service acknowledged the change."""
        answer = self._ask(method, kind, **request)
        assert answer.is_success or answer.status_code in {404, 503}, answer.text
        self._tally.counts["changes"] += answer.is_success
        return answer.is_success

    def _expect(self, what: str, holds: Callable[[httpx.Response], bool]) -> None:
        answer = self._ask("GET", "models")
        if answer.status_code != 503 and not holds(answer):
            self._tally.stale.append(f"{what} of {self._name} is not there: {answer.text}")

    def _ask(self, method: str, kind: str, **request: Any) -> httpx.Response:
        began = time.monotonic()
        answer = self._http.request(method, f"/v1/spaces/s/{kind}/{self._name}", **request)
        if answer.status_code == 503:
            self._tally.refused.append(time.monotonic() - began)
        return answer


_TYPE = {"Content-Type": SIGNATURE}


def fill(url: str) -> None:
    """Make the space and its models."""
    rng = np.random.default_rng(7)

    def models() -> Iterator[tuple[str, Signature]]:
        for number in range(MODELS):
            values = rng.integers(0, 1 << 32, H).astype(np.uint32)
            signature = Signature.from_values(values, num_parameters=M, support_size=K)
            yield f"org/m{number:04}", signature

    with Client(url) as client:
        client.ensure_space("s", num_parameters=M, signature=SignatureSpec("affine32", H, 1))
        client.put_many("s", models())


def rebuild(http: httpx.Client, tally: Tally) -> None:
    """Rebuild the buckets once, by a job."""
    asked = http.post("/v1/spaces/s/jobs", json={"kind": "rebuild_buckets"})
    if not asked.is_success:
        return
    job = f"/v1/jobs/{asked.json()['id']}"
    end = time.monotonic() + 30
    while time.monotonic() < end:
        state = http.get(job).json().get("state")
        if state in _ENDED:
            tally.counts[f"rebuilds {state}"] += 1
            return
        time.sleep(0.2)
    tally.counts["rebuilds that took more than 30 s"] += 1
    http.post(f"{job}/cancel")


def hold_lock(file: str, tally: Tally) -> None:
    """Hold the write lock of the database once, as another process would."""
    with closing(sqlite3.connect(file, isolation_level=None, timeout=60)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        time.sleep(_LOCKED_S)
        foreign.execute("ROLLBACK")
    tally.counts["times locked"] += 1
    time.sleep(_LOCK_EVERY_S - _LOCKED_S)


@contextmanager
def again_and_again(stop: threading.Event, *actions: Callable[[], None]) -> Iterator[None]:
    """Repeat each action in a thread of its own; an error in one ends the block with it."""
    errors: list[BaseException] = []

    def run(action: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                action()
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def measure(folder: Path, seconds: float) -> Tally:
    """Run the service and its clients for so long."""
    tally = Tally()
    server = Server(folder, f"--database-timeout-seconds={TIMEOUT_S}").start()
    with ExitStack() as stack:
        stack.callback(server.stop)

        def client() -> httpx.Client:
            made = httpx.Client(base_url=server.url, timeout=60, trust_env=False)
            return stack.enter_context(made)

        fill(server.url)
        changers = [Changer(client(), number, tally) for number in range(CLIENTS)]
        jobs = client()
        stop = threading.Event()
        with again_and_again(
            stop,
            *(changer.step for changer in changers),
            lambda: rebuild(jobs, tally),
            lambda: hold_lock(str(folder / "m.db"), tally),
        ):
            stop.wait(seconds)
        log = folder / "m.db-wal"
        tally.counts["MB of the write-ahead log"] = log.stat().st_size >> 20
    return tally


def main() -> int:
    """Print what was counted; 1 if a read was stale, or a request refused too early."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = measure(Path(folder), 60 * options.minutes)
    print(", ".join(f"{count} {what}" for what, count in tally.counts.items()))
    early = sorted(tally.refused_early)
    print(f"{len(tally.stale)} stale, {len(tally.refused)} refused, {len(early)} of them early")
    print(*tally.stale[:5], *(f"refused after {after:.3f} s" for after in early[:5]), sep="\n")
    return 1 if tally.stale or early else 0


if __name__ == "__main__":
    sys.exit(main())
