"""Memory for bodies: bounded in all, not only one by one."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi.routing import APIRoute

from app.infra.errors import Unavailable
from app.infra.http.answers import AnswerMemory
from app.infra.http.requests.memory_budget import Budget, Reservation
from app.infra.http.turns import Turns
from app.main import described_routes
from modelkin import Support
from tests.support.app.harness import open_app
from tests.support.declared_problems import checked
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import ROARING, SUPPORT

MIB = 1 << 20


def test_a_hold_takes_and_gives_back() -> None:
    """What is held is counted, and a release gives all of it back."""
    budget = Budget(100, timeout=0)
    hold = Reservation(budget, "a")
    hold.take(60)
    hold.take(40)
    assert 100 == budget.held
    hold.release()
    assert 0 == budget.held


def test_the_budget_is_shared() -> None:
    """What one holds another cannot have: it waits, then is refused, and keeps what it had."""
    budget = Budget(100, timeout=0.05)
    first, second = Reservation(budget, "a"), Reservation(budget, "b")
    first.take(60)
    second.take(30)
    with pytest.raises(Unavailable, match="MODELKIN_MAX_INFLIGHT_BODY_BYTES"):
        second.take(20)
    assert 90 == budget.held


def test_one_that_is_too_large_goes_alone() -> None:
    """A request above the whole budget is admitted only if no other holds a part of it."""
    budget = Budget(100, timeout=0)
    hold = Reservation(budget, "a")
    hold.take(500)
    with pytest.raises(Unavailable):
        Reservation(budget, "a").take(1)


def test_a_tenant_gets_its_share_and_the_other_tenant_the_rest() -> None:
    """One that asks for more waits for its own requests; another waits for none of them."""
    budget = Budget(100, timeout=0.05, share=0.5)
    first, second = Reservation(budget, "a"), Reservation(budget, "a")
    first.take(40)
    with pytest.raises(Unavailable):
        second.take(20)
    second.take(10)
    Reservation(budget, "b").take(50)
    assert 100 == budget.held


def test_a_request_beyond_the_share_leaves_another_tenant_the_rest() -> None:
    """It goes on beside what others hold, and counts as a share; a second one has to wait."""
    budget = Budget(100, timeout=0.05, share=0.5)
    listing = Reservation(budget, "b")
    listing.take(10)
    Reservation(budget, "a").take(500)
    listing.take(30)
    with pytest.raises(Unavailable):
        Reservation(budget, "c").take(60)
    Reservation(budget, "c").take(10)
    assert 550 == budget.held


def test_what_is_released_goes_to_the_tenant_that_holds_least() -> None:
    """Those of a tenant that wait in a crowd come after the only one of another."""
    budget = Budget(100, timeout=5, share=0.6)
    holder = Reservation(budget, "a")
    holder.take(60)
    Reservation(budget, "b").take(40)
    order: list[str] = []

    def take(tenant: str) -> None:
        hold = Reservation(budget, tenant)
        hold.take(10)
        order.append(tenant)
        hold.release()

    crowd = [threading.Thread(target=take, args=(each,)) for each in "bbbc"]
    for place, thread in enumerate(crowd, 1):
        thread.start()
        _until_waiting(budget, place)
    holder.keep(50)
    for thread in crowd:
        thread.join()
    assert "cbbb" == "".join(order)


def test_a_reservation_shrinks_and_those_that_wait_go_on() -> None:
    """On the event loop, too: what one no longer needs is at once another's."""
    budget = Budget(100, timeout=5)
    first, second = Reservation(budget, "a"), Reservation(budget, "b")
    first.take(90)

    async def wait() -> None:
        waiting = asyncio.create_task(second.take_in_turn(60))
        await asyncio.sleep(0)
        assert 1 == budget.waiting
        first.keep(40)
        await waiting

    asyncio.run(wait())
    assert (40, 60, 100) == (first.size, second.size, budget.held)


def test_one_that_gives_up_waiting_lets_those_behind_it_go_on() -> None:
    """A cancelled request holds nothing, and its tenant's next request is served."""
    budget = Budget(100, timeout=5, share=0.5)
    holder, large, small = (Reservation(budget, "a") for _ in range(3))
    holder.take(30)

    async def wait() -> None:
        waiting = asyncio.create_task(large.take_in_turn(40))
        behind = asyncio.create_task(small.take_in_turn(20))
        await asyncio.sleep(0)
        assert 2 == budget.waiting
        waiting.cancel()
        await behind

    asyncio.run(wait())
    assert (0, 20) == (large.size, small.size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/spaces"),
        ("GET", "/v1/spaces/s/models"),
        ("GET", "/v1/spaces/s"),
        ("GET", "/v1/spaces/s/overlap?a=a&b=b"),
        ("GET", "/v1/spaces/s/tensors"),
        ("POST", "/v1/spaces"),
    ],
)
def test_no_listing_and_no_layout_holds_a_turn_while_it_waits_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    """So none keeps the write lock of a new space, or the place of a request that needs less."""
    turns: list[str] = []
    monkeypatch.setattr(Turns, "turn", lambda _, request, kind: turns.append(kind))

    async def refuse(hold: Reservation, size: int) -> None:
        raise Unavailable(f"no memory for {size} bytes")

    monkeypatch.setattr(Reservation, "take_in_turn", refuse)
    with open_app(tmp_path) as app:
        answer = app.http.request(method, path, json={} if method == "POST" else None)
        assert (503, []) == (answer.status_code, turns), answer.text


def test_large_answers_hold_memory() -> None:
    """What is not sent yet counts, so a client that does not read holds no more than its share."""
    large = {
        route.operation_id
        for route in described_routes()
        if isinstance(route, APIRoute)
        for each in inspect.signature(route.endpoint).parameters.values()
        if AnswerMemory == each.annotation
    }
    assert {"get_graph", "get_similarity", "get_support", "get_clustering"} <= large


def _until_waiting(budget: Budget, count: int) -> None:
    end = time.monotonic() + 5
    while budget.waiting != count:
        assert time.monotonic() < end
        time.sleep(0.001)


@on_one_database
@pytest.mark.slow
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
