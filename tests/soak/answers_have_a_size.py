"""What large answers cost: the memory of the service, and what a bystander waits beside them.

``python -m tests.soak.answers_have_a_size`` (``make soak``) prints a line for each kind of answer,
and exits with 1 where one takes more than 100 MB (binary supports: two copies of their indices) or
lets the bystander wait for more than a second.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np

from modelkin import Support
from tests.soak.bystander import BYSTANDER, CROWD, Load, Quiet
from tests.support.http_space import JSON, SUPPORT, random_support
from tests.support.servers.server_process import Server

__all__ = ["Answers", "main"]

_MAX_MEMORY, _MAX_WAIT_S = 100 << 20, 1.0
_MAX_BINARY_MEMORY = 8 * 2 * (20 << 20)
"""Two copies of the indices of each support that is read: as unpacked, and as written."""
_READERS = 8
_TENSORS = 36_000
_M = 20_000_000
_INDICES = 5_000_000


class Answers:
    """A service with what is large to answer, stored as far as possible before there were bounds.

    Args:
        load: its tenants.
    """

    def __init__(self, load: Load) -> None:
        self._load = load

    def fill(self) -> None:
        """Store the model of the bystander, and what is asked for."""
        rng = np.random.default_rng(1)
        with self._load.client(BYSTANDER) as http:
            self._models(http, "s", ["m"], rng)
        with self._load.client(CROWD) as http:
            self._models(http, "long", [f"m{number:02d}" for number in range(60)], rng)
            self._models(http, "many", [f"m{number:03d}" for number in range(1000)], rng)
            self._store_attributes("long", {"values": [[]] * 260_000})
            self._store_attributes("many", {"values": [[]] * 4000})
            layout = [{"name": f"{number}", "shape": [1]} for number in range(_TENSORS)]
            for number in range(20):
                body = {"name": f"laid-out-{number:02d}", "layout": layout}
                _ok(http.post("/v1/spaces", json=body))
            for name, m in (("laid-out-00", _TENSORS), ("wide", _M)):
                if name == "wide":
                    _ok(http.post("/v1/spaces", json={"name": name, "num_parameters": m}))
                k = _INDICES if name == "wide" else 1000
                support = Support.from_indices(np.arange(k) * (m // k), m)
                path, headers = f"/v1/spaces/{name}/supports/m", {"Content-Type": SUPPORT}
                _ok(http.put(path, content=support.to_bytes(), headers=headers))

    def attributes(self) -> Counter[int]:
        """60 models with a megabyte of attributes each, listed once."""
        return self._list("/v1/spaces/long/models")

    def pages(self) -> Counter[int]:
        """1,000 models with almost 16 KiB of attributes each, listed once."""
        return self._list("/v1/spaces/many/models")

    def layouts(self) -> Counter[int]:
        """20 spaces with a layout of a megabyte each, listed once."""
        return self._list("/v1/spaces")

    def supports_as_json(self) -> Counter[int]:
        """Eight reads at once of a support of 5 million indices as JSON."""
        return self._read(JSON)

    def supports(self) -> Counter[int]:
        """Eight reads at once of the same in the native format."""
        return self._read(SUPPORT)

    def tensors(self) -> Counter[int]:
        """The tensors of a space with 36,000, and the overlap of a model with itself by tensor."""
        with self._load.client(CROWD) as http:
            paths = "tensors", "overlap?a=m&b=m"
            answers = (http.get(f"/v1/spaces/laid-out-00/{path}") for path in paths * 2)
            return Counter(answer.status_code for answer in answers)

    def graph(self) -> Counter[int]:
        """The graph of 600 models and 180,000 edges, three times."""
        with self._load.client(CROWD) as http:
            path = "/v1/spaces/many/graph?threshold=0.0001&tag=near"
            return Counter(http.get(path, timeout=120).status_code for _ in range(3))

    def matrix(self) -> Counter[int]:
        """The matrix of 1,000 models, three times."""
        body = {"models": [f"m{number:03d}" for number in range(1000)]}
        with self._load.client(CROWD) as http:
            path = "/v1/spaces/many/similarity"
            return Counter(http.post(path, json=body, timeout=120).status_code for _ in range(3))

    def layout_share(self) -> float:
        """How much longer a model is asked for in a space with 36,000 tensors than in one without.

        The medians of 50 requests each, in turn.
        """
        paths = "/v1/spaces/laid-out-00/models/m", "/v1/spaces/wide/models/m"
        seconds: dict[str, list[float]] = {path: [] for path in paths}
        with self._load.client(CROWD) as http:
            for path in paths * 51:
                began = time.monotonic()
                _ok(http.get(path))
                seconds[path].append(time.monotonic() - began)
        laid_out, plain = (statistics.median(seconds[path][1:]) for path in paths)
        return laid_out / plain

    def _models(
        self, http: httpx.Client, space: str, names: list[str], rng: np.random.Generator
    ) -> None:
        _ok(http.post("/v1/spaces", json={"name": space, "num_parameters": 1000}))
        values = random_support(rng, 1000, 50).signature().values.tolist()
        signature = {"scheme": "affine32", "num_perm": len(values), "seed": 1, "support_size": 50}
        near = ["near"]
        lines = [
            {
                "model": name,
                "signature": {**signature, "values": values},
                "tags": near if place < 600 else [],
            }
            for place, name in enumerate(names)
        ]
        content = "".join(json.dumps(line) + "\n" for line in lines)
        headers = {"Content-Type": "application/jsonl"}
        _ok(http.post(f"/v1/spaces/{space}/batch", content=content, headers=headers))

    def _store_attributes(self, space: str, attributes: dict[str, object]) -> None:
        """Store attributes without the service, which would refuse them."""
        database = sqlite3.connect(self._load.server.folder / "m.db", timeout=30)
        with database:
            database.execute(
                "UPDATE models SET attributes = ? "
                "WHERE space_id = (SELECT id FROM spaces WHERE name = ?)",
                (json.dumps(attributes), space),
            )
        database.close()

    def _list(self, path: str) -> Counter[int]:
        answered: Counter[int] = Counter()
        params: dict[str, str | int] = {"limit": 1000}
        with self._load.client(CROWD) as http:
            while True:
                answer = http.get(path, params=params)
                answered[answer.status_code] += 1
                cursor = answer.json().get("next_cursor")
                if cursor is None:
                    return answered
                params["cursor"] = cursor

    def _read(self, accept: str) -> Counter[int]:
        def read(_: int) -> int:
            with self._load.client(CROWD) as http:
                path, headers = "/v1/spaces/wide/supports/m", {"Accept": accept}
                return http.get(path, headers=headers).status_code

        with ThreadPoolExecutor(_READERS) as pool:
            return Counter(pool.map(read, range(_READERS)))


def _ok(answer: httpx.Response) -> None:
    assert answer.is_success, answer.text[:500]


def main() -> int:
    """Ask for all of it; the exit code is 1 where a bound is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one of the kinds of answers")
    parser.add_argument("--minutes", type=float, default=0.0, help="repeat all of it for so long")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), "--auth=required", "--embedded-worker=off").start()
        try:
            load = Load(server)
            answers = Answers(load)
            answers.fill()
            server.stop()
            server.start()
            end = time.monotonic() + 60 * options.minutes
            while True:
                failed |= _ask_for_all(answers, Quiet(load), server, options.only)
                if time.monotonic() >= end:
                    break
        finally:
            server.kill()
    return int(failed)


def _ask_for_all(answers: Answers, bystander: Quiet, server: Server, only: str | None) -> bool:
    failed = False
    kinds = (
        answers.attributes,
        answers.pages,
        answers.layouts,
        answers.supports_as_json,
        answers.supports,
        answers.tensors,
        answers.graph,
        answers.matrix,
    )
    for each in kinds:
        if only not in (None, each.__name__):
            continue
        before = server.memory
        watch, answered, took = bystander.during(each)
        more, worst = max(watch.memory - before, 0), watch.percentile(1.0)
        most = _MAX_BINARY_MEMORY if each == answers.supports else _MAX_MEMORY
        bad = more > most or worst > _MAX_WAIT_S or bool(watch.refused)
        failed |= bad
        _say(
            f"{each.__name__}: {took:.1f} s, answered {dict(answered)}; memory "
            f"{before / 2**20:.0f} {more / 2**20:+.0f} MB; bystander: worst {worst * 1000:.0f} ms, "
            f"refused {dict(watch.refused)}{'  <- TOO MUCH' if bad else ''}"
        )
    _say(f"a model beside {_TENSORS} tensors: {answers.layout_share():.1f} times one without")
    return failed


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
