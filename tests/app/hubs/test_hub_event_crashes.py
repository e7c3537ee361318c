"""Deliveries and a service that is killed among them: what was acknowledged is there afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.declared_problems import checked
from tests.support.hub_payloads import hf_headers, hf_payload
from tests.support.servers.server_process import Server

SECRET = "shared"
BEFORE_DEATH = 60


def deliver(http: httpx.Client, hook: str, number: int) -> int:
    """The status of one delivery; 0 where the service died over it."""
    payload, headers = hf_payload(f"org/m{number}"), hf_headers(SECRET, f"msg_{number}")
    try:
        return http.post(hook, json=payload, headers=headers).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.slow
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """After kill -9 every acknowledged delivery is recorded with its job, and known again; others
    are there whole or not at all, and taken when they are repeated.
    """
    server = Server(tmp_path, "--embedded-worker=off", "--egress-allow=127.0.0.1").start()
    source = {"kind": "huggingface", "space": "kin", "secret": SECRET, "poll_seconds": None}
    made = httpx.post(f"{server.url}/v1/sources", json={**source, "url": "http://127.0.0.1:9"})
    hook, acknowledged, enough = made.json()["hook"], set[int](), threading.Event()

    def go_on(numbers: range) -> None:
        with checked(httpx.Client(base_url=server.url, timeout=30)) as http:
            for number in numbers:
                if deliver(http, hook, number) != 202:
                    return
                acknowledged.add(number)
                if len(acknowledged) >= BEFORE_DEATH:
                    enough.set()

    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(go_on, range(start, 100_000, 6)) for start in range(6)]
        assert enough.wait(60)
        server.kill()
        for ended in waiting:
            ended.result()
    server.start()
    with checked(httpx.Client(base_url=server.url, timeout=30)) as http:
        recorded = listed(http, f"/v1/sources/{made.json()['id']}/deliveries")
        jobs = {job["id"]: job["parameters"]["model"] for job in listed(http, "/v1/jobs")}
        models = {delivery["model"]: jobs[delivery["job"]] for delivery in recorded}
        assert all(model == looked_at for model, looked_at in models.items())
        assert {f"org/m{number}" for number in acknowledged} <= models.keys()
        assert len(models) == len(recorded) == len(jobs)
        assert {200} == {deliver(http, hook, number) for number in acknowledged}
        lost = set(range(max(acknowledged) + 7)) - acknowledged
        known = {number for number in lost if f"org/m{number}" in models}
        for number in sorted(lost)[:10]:
            assert (200 if number in known else 202) == deliver(http, hook, number)
    assert 0 == server.stop()


def listed(http: httpx.Client, path: str) -> list[dict[str, Any]]:
    """All rows of a listing."""
    page = http.get(path, params={"limit": 1000}).json()
    assert page["next_cursor"] is None
    items: list[dict[str, Any]] = page["items"]
    return items
