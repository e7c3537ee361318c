"""Measure hub events: the time until a pushed checkpoint has neighbours, and events per second.

The hub is a real server on loopback in this process. The service is one process on its embedded
store with an embedded worker. The whole way is measured: an event is verified, recorded and
answered, its sync starts and asks the hub, downloads the checkpoint and stores its support.
"""

from __future__ import annotations

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import save

from benchmarks.report import Findings, Row, Table, duration
from benchmarks.service.http import service
from tests.support.hub_payloads import hf_headers, hf_payload
from tests.support.servers.fake_huggingface import Hub, loopback_hub

LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy", "httpx", "cryptography", "numba")

SECRET = "of the benchmark"
CLIENTS = 8
TENSORS = 10
_TIMEOUT_S = 300.0


def run(quick: bool) -> Findings:
    """Push checkpoints one after the other, then send events all at once."""
    size, rounds = (20_000, 1) if quick else (11_000_000, 20)
    count = 10 if quick else 1000
    flags = ("--egress-allow=127.0.0.1", "--embedded-worker=on")
    with loopback_hub() as hub, service(*flags) as (http, _):
        hook = _follow(http, hub, "pushed")
        neighbors, accepted = _neighbors(http, hub, hook, size, rounds)
        hook = _follow(http, hub, "many")
        wall, seconds, stored = _deliveries(http, hub, hook, count)
    median, rate = statistics.median(neighbors), count / wall
    what = f"M = {TENSORS * (size // TENSORS):,}, float32"
    rows = [
        Row(
            f"webhook to visible neighbour, {what}: p50",
            duration(median),
            f"the delivery's answer: {duration(statistics.median(accepted))}",
            "",
            "≤ 2 s",
            median <= 2,
        ),
        Row(
            f"{count:,} deliveries to one process, {CLIENTS} at a time, none lost: in",
            duration(wall),
            f"{rate:.0f} a second",
            "",
            "≤ 10 s",
            wall <= 10,
        ),
    ]
    facts = [
        ["from a delivery to its model among the neighbours", _spread(neighbors)],
        ["a delivery's answer, one at a time", _spread(accepted)],
        [f"a delivery's answer, {CLIENTS} at a time, jobs under way beside", _spread(seconds)],
        [f"until all {count:,} models are stored, from the first delivery", duration(stored)],
    ]
    return Findings(rows, [Table("Hub events", ["", "median (least – most)"], facts)])


def _follow(http: httpx.Client, hub: Hub, space: str) -> str:
    """The path of a new hook, to which this hub sends events."""
    source = {
        "kind": "huggingface",
        "space": space,
        "secret": SECRET,
        "url": hub.url,
        "importance": "weight",
        "poll_seconds": None,
    }
    hook: str = http.post("/v1/sources", json=source).raise_for_status().json()["hook"]
    return hook


def _neighbors(
    http: httpx.Client, hub: Hub, hook: str, size: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds until each pushed model is a neighbour, and until its event is accepted."""
    generator = np.random.default_rng(5)
    shape = (TENSORS, size // TENSORS)
    common = generator.standard_normal(shape, np.float32)
    seen, accepted = [], []
    for number in range(rounds + 2):
        tensors = common + generator.standard_normal(shape, np.float32)
        name = f"org/m{number}"
        hub.blobs.clear()
        checkpoint = {f"layer{i}.weight": layer for i, layer in enumerate(tensors)}
        sha = hub.push(name, {"model.safetensors": save(checkpoint)})
        begin = time.perf_counter()
        _deliver(http, hook, name, sha)
        took = time.perf_counter() - begin
        _wait(partial(_is_seen, http, name, "org/m0"))
        if number >= 2:  # the first has no neighbour, the second loads the index
            seen.append(time.perf_counter() - begin)
            accepted.append(took)
    return seen, accepted


def _deliveries(
    http: httpx.Client, hub: Hub, hook: str, count: int
) -> tuple[float, list[float], float]:
    """Seconds for all events, for each, and until all of their models are stored."""
    generator = np.random.default_rng(6)
    news = []
    for number in range(count):
        tensors = {"w": generator.standard_normal((20, 20), np.float32)}
        name = f"many/m{number}"
        news.append((name, hub.push(name, {"model.safetensors": save(tensors)})))
    begin = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        seconds = list(pool.map(lambda event: _deliver(http, hook, *event), news))
    wall = time.perf_counter() - begin
    source = hook.replace("/hooks/", "/sources/")
    recorded = _all(http, f"{source}/deliveries")
    jobs = {delivery["job"] for delivery in recorded}
    if (count, count) != (len({delivery["model"] for delivery in recorded}), len(jobs)):
        raise RuntimeError(f"{len(recorded)} deliveries and {len(jobs)} jobs are not {count}")
    _wait(lambda: _stored(http) == count)
    return wall, seconds, time.perf_counter() - begin


def _deliver(http: httpx.Client, hook: str, name: str, sha: str) -> float:
    """Seconds until an event is accepted."""
    payload = hf_payload(name, sha=sha, refs=["refs/heads/main"])
    headers = {**hf_headers(SECRET), "Content-Type": "application/json"}
    content = json.dumps(payload)
    begin = time.perf_counter()
    answer = http.post(hook, content=content, headers=headers)
    if answer.status_code != 202:
        raise RuntimeError(f"{answer.status_code} {answer.text}")
    return time.perf_counter() - begin


def _is_seen(http: httpx.Client, name: str, by: str) -> bool:
    """Whether a model is a neighbour of another one; for itself, whether it is stored."""
    asked = {"model": by, "k": "1000"}
    answer = http.get("/v1/spaces/pushed/neighbors", params=asked)
    if answer.status_code == 404:
        return False
    items = answer.raise_for_status().json()["items"]
    return name == by or any(item["model"] == name for item in items)


def _stored(http: httpx.Client) -> int:
    answer = http.get("/v1/spaces/many")
    return 0 if answer.status_code == 404 else int(answer.raise_for_status().json()["models"])


def _all(http: httpx.Client, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = http.get(path, params={"limit": "1000", **cursor}).raise_for_status().json()
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        cursor = {"cursor": page["next_cursor"]}


def _wait(until: Any) -> None:
    end = time.monotonic() + _TIMEOUT_S
    while not until():
        if time.monotonic() > end:
            raise RuntimeError("what was delivered did not come to be")
        time.sleep(0.02)


def _spread(seconds: list[float]) -> str:
    median, least, most = statistics.median(seconds), min(seconds), max(seconds)
    return f"{duration(median)} ({duration(least)} – {duration(most)})"
