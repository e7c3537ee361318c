"""What large JSON bodies cost, one by one, and what a bystander notices of sixteen clients' bodies.

``python -m tests.soak.large_bodies`` (``make soak``) sends hostile and correct bodies of just below
1 MiB one after another, and then from sixteen clients at once beside a bystander of another tenant.
It exits with 1 where a body takes more than 150 ms, or where the bystander waits too long.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx

from tests.soak.bystander import CROWD, Load, Quiet
from tests.support.servers.server_process import Server

_SIZE: Final = 1 << 20
_CLIENTS: Final = 16
_MAX_BODY_S, _MAX_P99_S, _MAX_WORST_S = 0.15, 0.1, 0.5
_M: Final = 10_000_000
_MADE: Final = "made"
"""The space that a valid layout makes."""

Call = tuple[str, str, bytes]
"""Method, path and body of a request."""


def _filled(head: str, item: str, tail: str) -> bytes:
    count = (_SIZE - len(head) - len(tail)) // (len(item) + 1)
    return f"{head}{','.join([item] * count)}{tail}".encode()


def _calls() -> Mapping[str, Call]:
    """A request of each kind; what one of them makes is deleted after it."""
    names = [f'"{number:x}":0' for number in range(110_000)]
    similarity = "POST", "/v1/spaces/large/similarity"
    spaces = "POST", "/v1/spaces"
    model = "PATCH", "/v1/spaces/s/models/m"
    layout = ",".join(f'{{"name":"{number:x}","shape":[1]}}' for number in range(33_000))
    slow = ",".join(f'{{"name":"{n:04}{"a" * 496}","shape":[1]}}' for n in range(1800))
    quick = ",".join(f'{{"name":"{n:04}{"a" * 496}","shape":[1]}}' for n in range(1900))
    patterns = ",".join(f'"*{"a" * 250}b{number}*"' for number in range(32))
    batch = "POST", "/v1/spaces/wide/batch"
    indices = ",".join(map(str, range(0, _M, 80)))
    return {
        "a name twice": (*similarity, f"{{{','.join([*names, names[-1]])}}}".encode()),
        "unknown names": (*similarity, f"{{{','.join(names)}}}".encode()),
        "names of models": (*similarity, _filled('{"models":[', '"abcdef"', "]}")),
        "layout of numbers": (*spaces, _filled('{"name":"a","layout":[', "0", "]}")),
        "layout, M is wrong": (
            *spaces,
            f'{{"name":"a","num_parameters":7,"layout":[{layout}]}}'.encode(),
        ),
        "layout": (*spaces, f'{{"name":"{_MADE}","layout":[{layout}]}}'.encode()),
        "exclude, too slow": (
            *spaces,
            f'{{"name":"a","layout":[{slow}],"exclude":[{patterns}]}}'.encode(),
        ),
        "exclude, slowest": (
            *spaces,
            f'{{"name":"a","layout":[{quick}],"exclude":["*{"a" * 80}b*"]}}'.encode(),
        ),
        "attributes": (*model, _filled('{"attributes":{"x":[', "0", "]}}")),
        "line of attributes": (*batch, _filled('{"model":"m","attributes":{"x":[', "0", "]}}")),
        "line of objects": (*batch, _filled('{"model":"m","tags":[', '{"a":0}', "]}")),
        "delivery of a hub": ("POST", "/v1/hooks/unknown", _filled('{"x":[', "0", "]}")),
        "tags of numbers": (*model, _filled('{"tags":[', "0", "]}")),
        "objects": (*model, _filled('{"tags":[', '{"a":0}', "]}")),
        "depth": (*model, b'{"attributes":' + b"[" * (_SIZE // 2) + b"]" * (_SIZE // 2 - 20)),
        "escapes": (*model, _filled('{"base_model":"', "\\u00e9", '"}')),
        "indices": (
            "POST",
            "/v1/spaces/wide/neighbors",
            f'{{"indices":[{indices}]}}'.encode(),
        ),
    }


class Bodies(Load):
    """A service of two tenants whose crowd sends large JSON bodies."""

    def fill(self) -> None:
        """Create the crowd's spaces, beside the bystander's own."""
        super().fill()
        with self.client(CROWD) as http:
            space = {"name": "wide", "num_parameters": _M}
            http.post("/v1/spaces", json=space).raise_for_status()

    def one_by_one(self, tries: int = 5) -> bool:
        """Print what each body takes alone, the least of some tries; whether one takes too long."""
        failed = False
        with self.client(CROWD) as http:
            for name, call in _calls().items():
                times, status = [], 0
                for _ in range(tries):
                    began = time.monotonic()
                    status = _send(http, call)
                    times.append(time.monotonic() - began)
                    _undo(http, status)
                bad = min(times) > _MAX_BODY_S
                failed |= bad
                _say(
                    f"{name:20} {len(call[2]):8} bytes {status} in {min(times) * 1000:6.0f} ms, "
                    f"at most {max(times) * 1000:6.0f} ms{'  <- TOO LONG' if bad else ''}"
                )
        return failed

    def crowd(self, call: Call, seconds: float) -> Counter[int]:
        """Sixteen clients that send the same body again and again."""
        end = time.monotonic() + seconds

        def go_on(http: httpx.Client) -> Counter[int]:
            answered: Counter[int] = Counter()
            while time.monotonic() < end:
                status = _send(http, call)
                answered[status] += 1
                _undo(http, status)
            return answered

        with ExitStack() as stack, ThreadPoolExecutor(_CLIENTS) as pool:
            clients = [stack.enter_context(self.client(CROWD)) for _ in range(_CLIENTS)]
            return sum(pool.map(go_on, clients), Counter[int]())


def _send(http: httpx.Client, call: Call) -> int:
    method, path, body = call
    media_type = "application/jsonl" if path.endswith("/batch") else "application/json"
    return http.request(
        method, path, content=body, headers={"Content-Type": media_type}
    ).status_code


def _undo(http: httpx.Client, status: int) -> None:
    """Delete what a request made."""
    if status == 201:
        http.delete(f"/v1/spaces/{_MADE}")


def _beside(load: Bodies, bystander: Quiet, name: str, call: Call, seconds: float) -> bool:
    """Print what a bystander sees beside the crowd; whether it is too much."""
    watch, answered, _ = bystander.during(lambda: load.crowd(call, seconds))
    p99, worst = watch.percentile(0.99), watch.percentile(1.0)
    bad = bool(watch.refused) or p99 > _MAX_P99_S or worst > _MAX_WORST_S
    _say(
        f"{_CLIENTS} x {name:20} answered {dict(answered)}; bystander: {len(watch.seconds)} "
        f"requests, refused {dict(watch.refused)}, p50 {watch.percentile(0.5) * 1000:.0f}, "
        f"p99 {p99 * 1000:.0f}, worst {worst * 1000:.0f} ms{'  <- TOO MUCH' if bad else ''}"
    )
    return bad


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Send the bodies; the exit code is 1 where a bound is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="of the crowd, in all")
    parser.add_argument("--only", help="one of the bodies")
    options = parser.parse_args()
    calls = {n: c for n, c in _calls().items() if options.only in (None, n)}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), "--auth=required", "--embedded-worker=off").start()
        try:
            load = Bodies(server, models=0, supports=1)
            load.fill()
            failed |= load.one_by_one()
            bystander = Quiet(load)
            alone = bystander.alone(5)
            _say(f"alone: p99 {alone.percentile(0.99) * 1000:.0f} ms")
            for name, call in calls.items():
                seconds = options.minutes * 60 / len(calls)
                failed |= _beside(load, bystander, name, call, seconds)
        finally:
            server.kill()
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
