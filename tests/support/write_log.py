"""Writers that record which writes the service has acknowledged, and which are still open."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from modelkin import Support, wire
from tests.support.declared_problems import checked
from tests.support.http_space import SUPPORT, random_support, related

M, K = 10_000, 200


@dataclass(frozen=True)
class State:
    """The state of one model: absent, or a digest with tags and attributes."""

    digest: str | None = None
    tags: tuple[str, ...] = ()
    attributes: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, model: dict[str, Any] | None) -> State:
        """The state of a model in an answer of the service."""
        if model is None:
            return cls()
        attributes = tuple(sorted(model["attributes"].items()))
        return cls(model["digest"], tuple(model["tags"]), attributes)


@dataclass
class WriteLog:
    """Per model: the last acknowledged state, and a later one that may have been written."""

    acknowledged: dict[str, State] = field(default_factory=dict)
    pending: dict[str, State] = field(default_factory=dict)
    writes: int = 0

    def acknowledge(self, name: str, state: State) -> None:
        """Record an acknowledged write of ``state``."""
        self.writes += 1
        self.settle(name, state)

    def settle(self, name: str, state: State) -> None:
        """Record ``state`` as the confirmed state of the model."""
        self.acknowledged[name] = state
        self.pending.pop(name, None)

    def possible(self, name: str) -> set[State]:
        """The states that the model may have now."""
        certain = self.acknowledged.get(name, State())
        return {certain, self.pending.get(name, certain)}


class Writer(threading.Thread):
    """Puts, changes and deletes its own models until it is stopped or the service is gone.

    Args:
        url: of the service.
        space: an existing space.
        write_log: used by this writer only; the writer continues from its states.
        seed: of the random changes.
        through_faults: after a 503, as after a lost answer, the write may be committed or not.

    Attributes:
        refused: what was not acknowledged, and why.
        longest: seconds that an answer took, or that it was waited for in vain.
    """

    def __init__(
        self,
        url: str,
        space: str,
        write_log: WriteLog,
        number: int,
        seed: int,
        *,
        through_faults: bool = False,
    ) -> None:
        super().__init__()
        self.write_log = write_log
        self._through_faults = through_faults
        self.refused: list[str] = []
        self.longest = 0.0
        self._http = checked(
            httpx.Client(base_url=f"{url}/v1/spaces/{space}", timeout=30, trust_env=False)
        )
        self._names = [f"w{number}/m{i}" for i in range(6)]
        self._random = np.random.default_rng([seed, number])
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Finish the write under way and end."""
        self._stopping.set()

    def run(self) -> None:
        with self._http:
            while not self._stopping.is_set():
                name = str(self._random.choice(self._names))
                try:
                    self._write(name, self.write_log.acknowledged.get(name, State()))
                except httpx.TransportError:
                    return  # the service was killed: the write stays pending
                if self._through_faults and self.refused:
                    return

    def _write(self, name: str, now: State) -> None:
        """Change one model; the change is recorded as pending before it is sent."""
        tags = tuple(sorted({f"t{n}" for n in self._random.integers(9, size=2)}))
        chance = self._random.random()
        if now.digest is None or chance < 0.45:
            support = random_support(self._random, M, K)
            self._put(name, support, State(support.digest, tags, now.attributes))
        elif chance < 0.6:
            self._patch(name, now)
        elif chance < 0.8:
            attributes = {"n": int(self._random.integers(1000))}
            body = {"tags": tags, "attributes": attributes}
            after = State(now.digest, tags, tuple(attributes.items()))
            self._change(name, after, "PATCH", f"/models/{name}", json=body)
        else:
            self._change(name, State(), "DELETE", f"/models/{name}")

    def _put(self, name: str, support: Support, after: State) -> None:
        headers = {"Content-Type": SUPPORT}
        params = {"tag": list(after.tags)}
        content = support.to_bytes()
        self._change(
            name, after, "PUT", f"/supports/{name}", content=content, params=params, headers=headers
        )

    def _patch(self, name: str, now: State) -> None:
        """Exchange half of the support, by a patch to the version in the service."""
        url = f"/supports/{name}"
        read = self._http.get(url)
        if not read.is_success:
            self.refused.append(f"GET {url}: {read.status_code} {read.text}")
            return
        before = Support.from_bytes(read.content)
        after = related(self._random, before, 0.5)
        headers = {"Content-Type": wire.PATCH, "If-Match": read.headers["ETag"]}
        content = wire.encode_patch(before, after)
        state = State(after.digest, now.tags, now.attributes)
        self._change(name, state, "PATCH", url, content=content, headers=headers)

    def _change(self, name: str, after: State, method: str, url: str, **request: Any) -> None:
        self.write_log.pending[name] = after
        began = time.monotonic()
        try:
            answer = self._http.request(method, url, **request)
        finally:
            self.longest = max(self.longest, time.monotonic() - began)
        if answer.is_success:
            self.write_log.acknowledge(name, after)
        else:
            self.refused.append(f"{method} {url}: {answer.status_code} {answer.text}")
            if not (self._through_faults and answer.status_code == 503):
                self.write_log.pending.pop(name)


def start_writers(
    url: str, space: str, write_logs: list[WriteLog], seed: int, *, through_faults: bool = False
) -> list[Writer]:
    """Start one writer for each log."""
    writers = [
        Writer(url, space, write_log, number, seed, through_faults=through_faults)
        for number, write_log in enumerate(write_logs)
    ]
    for writer in writers:
        writer.start()
    return writers


def wait_for_writes(write_logs: list[WriteLog], more: int = 25) -> None:
    """Until so many more writes were acknowledged."""
    target = sum(write_log.writes for write_log in write_logs) + more
    end = time.monotonic() + 60
    while sum(write_log.writes for write_log in write_logs) < target:
        assert time.monotonic() < end
        time.sleep(0.01)


def finish(writers: list[Writer]) -> list[str]:
    """Stop all writers; return the refusals that they received."""
    for writer in writers:
        writer.stop()
    for writer in writers:
        writer.join()
    return [refusal for writer in writers for refusal in writer.refused]
