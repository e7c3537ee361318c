"""Turns are shared by tenants: none waits for all that another has asked."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi import Request
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from app.infra.deadlines import Deadline
from app.infra.errors import Unavailable
from app.infra.http.turns import Pool, TurnKind, Turns, asks_for_many
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.app.harness import AppHarness, open_app
from tests.support.http_space import SIGNATURE, random_support
from tests.support.hub_payloads import hf_headers, hf_payload
from tests.support.servers.server_process import Server

# --- a pool -----------------------------------------------------------------------------------


class Crowd:
    """Requests that are served until a test ends them.

    Args:
        pool: whose turns they take.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.served: list[str] = []
        self.asked: Counter[str] = Counter()
        """Requests of each tenant that are served or wait."""
        self.held: Counter[str] = Counter()
        self.tasks: list[tuple[str, asyncio.Task[None], asyncio.Event]] = []

    async def come(self, *tenants: str) -> None:
        """One request of each tenant comes, after another."""
        for tenant in tenants:
            over = asyncio.Event()
            task = asyncio.create_task(self._ask(tenant, over))
            self.tasks.append((tenant, task, over))
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def leave(self, tenant: str) -> None:
        """The longest served request of a tenant ends."""
        at = next(i for i, (each, _, _) in enumerate(self.tasks) if each == tenant)
        _, task, over = self.tasks.pop(at)
        over.set()
        await task

    async def give_up(self, tenant: str) -> None:
        """The newest request of a tenant is cancelled."""
        at = max(i for i, (each, _, _) in enumerate(self.tasks) if each == tenant)
        _, task, _ = self.tasks.pop(at)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)

    async def go_home(self) -> None:
        """All requests end."""
        for _, task, over in self.tasks:
            over.set()
            task.cancel()
        await asyncio.gather(*(task for _, task, _ in self.tasks), return_exceptions=True)

    def waiting(self) -> set[str]:
        """The tenants with a request that is not served yet."""
        return {tenant for tenant, _, _ in self.tasks if self.asked[tenant] > self.holds(tenant)}

    def holds(self, tenant: str) -> int:
        """The requests of a tenant that are served now."""
        return self.held[tenant]

    async def _ask(self, tenant: str, over: asyncio.Event) -> None:
        self.asked[tenant] += 1
        try:
            async with self.pool.turn(tenant):
                self.served.append(tenant)
                self.held[tenant] += 1
                try:
                    await over.wait()
                finally:
                    self.held[tenant] -= 1
        finally:
            self.asked[tenant] -= 1


def test_a_tenant_that_waits_is_next_however_many_another_has_sent() -> None:
    async def run() -> list[str]:
        crowd = Crowd(Pool(4, share=0.5, timeout=5))
        await crowd.come(*"aaaaaaaaaa", "b", "b", "c")
        served_at_once = crowd.served[:]
        for _ in range(3):
            await crowd.leave("a")
            await asyncio.sleep(0)
        await crowd.go_home()
        assert ["a", "a", "a", "b"] == served_at_once, "the last turn is for another tenant"
        return crowd.served[4:7]

    assert ["c", "a", "b"] == asyncio.run(run())


def test_a_tenant_alone_gets_all_turns_but_one() -> None:
    async def run() -> list[str]:
        crowd = Crowd(Pool(4, share=0.5, timeout=5))
        await crowd.come(*"aaaaaa")
        served = crowd.served[:]
        await crowd.go_home()
        return served

    assert ["a"] * 3 == asyncio.run(run())


def test_a_single_turn_goes_round() -> None:
    async def run() -> list[str]:
        crowd = Crowd(Pool(1, share=0.5, timeout=5))
        await crowd.come(*"aaabb")
        for tenant in "abab":
            await crowd.leave(tenant)
            await asyncio.sleep(0)
        await crowd.go_home()
        return crowd.served

    assert [*"ababa"] == asyncio.run(run())


def test_tenants_of_one_request_at_a_time_and_of_many_are_served_equally_often() -> None:
    """Those that come back at once are behind those that have waited, however often they come."""

    async def run() -> Counter[str]:
        pool, served = Pool(2, share=0.5, timeout=60), Counter[str]()
        over = time.monotonic() + 0.5

        async def client(tenant: str) -> None:
            while time.monotonic() < over:
                async with pool.turn(tenant):
                    await asyncio.sleep(0.001)
                served[tenant] += time.monotonic() < over
                await asyncio.sleep(0)

        await asyncio.gather(*map(client, "abcdTTZZZZ"))
        assert (0, 0) == (pool.held, pool.waiting)
        return served

    served = asyncio.run(run())
    assert min(served.values()) > 0.5 * max(served.values()), served


def test_deliveries_of_sources_that_none_has_verified_are_of_one_tenant() -> None:
    """Who invents sources waits behind its own; a verified one has turns of its own."""

    def delivery(source: str) -> Request:
        return Request(
            {
                "type": "http",
                "method": "POST",
                "query_string": b"",
                "path_params": {"source": source},
            }
        )

    async def run() -> list[str]:
        turns = Turns(1000, share=0.25, timeout=5, query_timeout=1, cores=2)
        turns.note_verified("real")
        served, over = list[str](), asyncio.Event()

        async def deliver(source: str) -> None:
            async with turns.turn(delivery(source), "hooks"):
                served.append(source)
                await over.wait()

        sources = [*(f"invented{i}" for i in range(20)), "real"]
        tasks = [asyncio.create_task(deliver(source)) for source in sources]
        await asyncio.sleep(0.05)
        served_at_once = served[:]
        over.set()
        await asyncio.gather(*tasks)
        assert turns.of("hooks").size == len(served_at_once)
        return served_at_once

    assert "real" == asyncio.run(run())[-1], "the last turn is not for what is invented"


@given(
    size=st.integers(1, 6),
    share=st.floats(0.1, 1.0),
    events=st.lists(
        st.tuples(st.sampled_from(["come", "leave", "give_up"]), st.sampled_from("abc")),
        max_size=40,
    ),
)
@settings(max_examples=50)
def test_no_turn_is_lost_and_none_is_free_while_somebody_may_have_it(
    size: int, share: float, events: Sequence[tuple[str, str]]
) -> None:
    """Requests come, end and give up: turns are conserved, and given out as far as they may be."""

    async def run() -> None:
        crowd = Crowd(Pool(size, share=share, timeout=5))
        for what, tenant in events:
            there = [each for each, _, _ in crowd.tasks]
            if what == "come":
                await crowd.come(tenant)
            elif tenant in there:
                await (crowd.give_up(tenant) if what == "give_up" else _end_one(crowd, tenant))
            pool = crowd.pool
            assert 0 <= pool.held <= size
            assert pool.held + pool.waiting == len(crowd.tasks)
            most = max(1, size - 1)
            if pool.waiting and pool.held < size:
                assert all(crowd.holds(each) >= most for each in crowd.waiting())
        await crowd.go_home()
        assert (crowd.pool.held, crowd.pool.waiting) == (0, 0)

    async def _end_one(crowd: Crowd, tenant: str) -> None:
        if crowd.holds(tenant):
            await crowd.leave(tenant)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(run())


def test_who_waits_too_long_is_told_what_would_do() -> None:
    async def run() -> None:
        pool = Pool(1, share=0.5, timeout=0.01, work="other reads are")
        async with pool.turn("a"):
            with pytest.raises(Unavailable, match="send fewer at a time"):
                async with pool.turn("b"):
                    pass
        assert (pool.held, pool.waiting) == (0, 0)

    asyncio.run(run())


@pytest.mark.parametrize("connections", [12, 20, 40, 1000])
@pytest.mark.parametrize("cores", [1, 2, 64])
def test_turns_leave_threads_and_connections(connections: int, cores: int) -> None:
    turns = Turns(connections, share=0.5, timeout=1, query_timeout=1, cores=cores)
    kinds: tuple[TurnKind, ...] = ("reading", "writing", "heavy", "hooks")
    sizes = [turns.of(kind).size for kind in kinds]
    assert min(sizes) >= 1
    assert sum(sizes) <= min(32, max(4, connections - 8))


# --- kinds of work ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service without a model."""
    with open_app(tmp_path_factory.mktemp("kinds")) as harness:
        yield harness


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/v1/spaces/s/neighbors?model=m", "reading"),
        ("POST", "/v1/spaces/s/neighbors?method=scan", "reading"),
        ("POST", "/v1/spaces/s/neighbors?method=exact", "heavy"),
        ("GET", "/v1/spaces/s/neighbors?model=m&k=100", "reading"),
        ("GET", "/v1/spaces/s/neighbors?model=m&k=101", "heavy"),
        ("GET", "/v1/spaces/s/donors?target=m&method=similarity", "reading"),
        ("GET", "/v1/spaces/s/donors?target=m&k=1000", "heavy"),
        ("GET", "/v1/spaces/s/donors?target=m&k=60" + 60 * "&exclude=m", "heavy"),
        ("POST", "/v1/spaces/s/donors?method=cover", "heavy"),
        ("GET", "/v1/spaces/s/graph?k=3", "heavy"),
        ("GET", "/v1/spaces/s/lineage?model=m", "heavy"),
        ("GET", "/spaces/s/models/m", "reading"),
        ("GET", "/spaces/s/models/m?k=12", "reading"),
        ("GET", "/spaces/s/models/m?k=13", "heavy"),
        ("GET", "/spaces/s/models/m?k=%2B9", "heavy"),
        ("GET", "/spaces/s/graph?of=a&of=b&of=c&of=d&of=e", "heavy"),
        ("POST", "/v1/spaces/s/similarity", "heavy"),
        ("GET", "/v1/spaces/s/overlap?a=a&b=b", "reading"),
        ("GET", "/v1/spaces/s/clusterings/latest", "heavy"),
        ("POST", "/v1/spaces/s/clusterings/latest/assign", "reading"),
        ("POST", "/v1/spaces/s/clusterings/latest/join", "writing"),
        ("POST", "/v1/spaces/s/clusterings", "writing"),
        ("DELETE", "/v1/spaces/s/clusterings/c", "writing"),
        ("POST", "/v1/hooks/h", "hooks"),
    ],
)
def test_each_request_takes_a_turn_of_one_kind(
    small: AppHarness, monkeypatch: pytest.MonkeyPatch, method: str, path: str, kind: TurnKind
) -> None:
    taken: list[TurnKind] = []
    turn = Turns.turn

    def note(
        turns: Turns, request: Request, kind: TurnKind
    ) -> AbstractAsyncContextManager[Deadline]:
        taken.append(kind)
        return turn(turns, request, kind)

    monkeypatch.setattr(Turns, "turn", note)
    small.http.request(method, path, json={} if method == "POST" else None)
    assert [kind] == taken


@pytest.mark.parametrize(
    ("query", "many"),
    [("", False), ("k=100", False), ("k=101", True), ("k=5&k=1000", True), ("k=1_000", True)],
)
def test_what_is_not_plainly_a_small_number_counts_as_a_large_one(query: str, many: bool) -> None:
    assert many == asks_for_many(QueryParams(query))


# --- a live service ---------------------------------------------------------------------------

M = 1000
_LOCKED_S = 2.0


class Shared:
    """A service of two tenants."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.keys = {name: new_key(server, "--tenant", name) for name in ("crowd", "bystander")}
        for name in self.keys:
            with self.client(name) as http:
                space = {"name": "s", "num_parameters": M}
                assert 201 == http.post("/v1/spaces", json=space).status_code
                self.put(http, "m").raise_for_status()

    def client(self, tenant: str) -> httpx.Client:
        return httpx.Client(
            base_url=self.server.url,
            headers={"Authorization": f"Bearer {self.keys[tenant]}"},
            timeout=60,
            trust_env=False,
        )

    def put(self, http: httpx.Client, name: str) -> httpx.Response:
        signature = random_support(np.random.default_rng(1), M, 50).signature()
        return http.put(
            f"/v1/spaces/s/signatures/{name}",
            content=signature.to_bytes(),
            headers={"Content-Type": SIGNATURE},
        )

    def worst_read(self, over: threading.Event) -> tuple[float, Counter[int]]:
        """The longest time of the bystander's reads until something is over, and the statuses."""
        worst, statuses = 0.0, Counter[int]()
        with self.client("bystander") as http:
            while not over.is_set():
                began = time.monotonic()
                statuses[http.get("/v1/spaces/s/models/m").status_code] += 1
                worst = max(worst, time.monotonic() - began)
                time.sleep(0.05)
        return worst, statuses


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("shared")
    flags = "--auth=required", "--embedded-worker=off", "--database-timeout-seconds=1"
    server = Server(folder, *flags).start()
    yield Shared(server)
    server.kill()


@contextmanager
def write_lock(folder: Path) -> Iterator[None]:
    """Another program holds the write lock of the database."""
    other = sqlite3.connect(folder / "m.db", isolation_level=None, timeout=10)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.slow
def test_readers_do_not_wait_for_writers_that_wait_for_the_lock(shared: Shared) -> None:
    over = threading.Event()
    with ThreadPoolExecutor(32) as pool, write_lock(shared.server.folder):
        reads = pool.submit(shared.worst_read, over)
        with shared.client("crowd") as http:
            writes = [pool.submit(shared.put, http, f"new{i}") for i in range(24)]
            time.sleep(_LOCKED_S)
            over.set()
            worst, statuses = reads.result()
            waited = Counter(write.result().status_code for write in writes)
    assert set(statuses) == {200}
    assert worst < 1.0
    assert waited[503] > 0, "the lock was held for longer than a writer waits"


@pytest.mark.slow
def test_readers_do_not_wait_for_deliveries_of_hubs(shared: Shared) -> None:
    source = {"kind": "huggingface", "space": "s", "secret": "x" * 20, "poll_seconds": None}
    with shared.client("crowd") as http:
        hook = http.post("/v1/sources", json=source).raise_for_status().json()["hook"]
        over = threading.Event()
        with ThreadPoolExecutor(48) as pool, write_lock(shared.server.folder):
            reads = pool.submit(shared.worst_read, over)
            began = time.monotonic()
            sent = [
                pool.submit(
                    http.post,
                    hook,
                    json=hf_payload(f"org/m{i}"),
                    headers=hf_headers("x" * 20, f"d{i}"),
                )
                for i in range(40)
            ]
            statuses = Counter(each.result().status_code for each in sent)
            took = time.monotonic() - began
            over.set()
            worst, read = reads.result()
    assert set(read) == {200}
    assert worst < 1.0
    assert statuses == {503: 40}
    assert took < 8, "a group that fails on the lock fails as a whole, after a second"
