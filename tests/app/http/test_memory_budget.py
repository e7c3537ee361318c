"""Memory for bodies: bounded in all, not only one by one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from app.errors import Unavailable
from app.infra.http.memory_budget import Budget, Reservation
from modelkin import Support
from tests.support.declared_problems import checked
from tests.support.fixtures import Start
from tests.support.http_space import ROARING, SUPPORT

MIB = 1 << 20


def test_a_hold_takes_and_gives_back() -> None:
    """What is held is counted, and a release gives all of it back."""
    budget = Budget(100, timeout=0)
    hold = Reservation(budget)
    hold.take(60)
    hold.take(40)
    assert 100 == budget.held
    hold.release()
    assert 0 == budget.held


def test_the_budget_is_shared() -> None:
    """What one holds another cannot have: it waits, then is refused, and keeps what it had."""
    budget = Budget(100, timeout=0.05)
    first, second = Reservation(budget), Reservation(budget)
    first.take(60)
    second.take(30)
    with pytest.raises(Unavailable, match="MODELKIN_MAX_INFLIGHT_BODY_BYTES"):
        second.take(20)
    assert 90 == budget.held


def test_one_that_is_too_large_goes_alone() -> None:
    """A request above the whole budget is admitted only if no other holds a part of it."""
    budget = Budget(100, timeout=0)
    hold = Reservation(budget)
    hold.take(500)
    with pytest.raises(Unavailable):
        Reservation(budget).take(1)


def test_many_expanding_bodies_stay_within_the_budget(start: Start) -> None:
    """Small bodies that mean many indices are decoded one after another: memory stays bounded."""
    m = 20_000_000
    every = Support.from_indices(np.arange(m, dtype=np.uint32), m)
    bodies = [(SUPPORT, every.to_bytes()), (ROARING, every.to_roaring())]
    server = start(f"--max-inflight-body-bytes={240 * MIB}", f"--max-body-bytes={256 * MIB}")
    with checked(httpx.Client(base_url=server.url, timeout=120, trust_env=False)) as http:
        http.post("/v1/spaces", json={"name": "s", "num_parameters": m})
        before = server.memory

        def ask(number: int) -> int:
            media_type, body = bodies[number % 2]
            headers = {"Content-Type": media_type}
            return http.post("/v1/spaces/s/neighbors", content=body, headers=headers).status_code

        with ThreadPoolExecutor(8) as clients:
            statuses = set(clients.map(ask, range(8)))
        assert statuses <= {200, 503}
        assert 200 in statuses
        assert server.peak_memory - before < 700 * MIB
        assert 200 == ask(0)
