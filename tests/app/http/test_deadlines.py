"""Answers end in time: with what is there, or with what would take less."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import Engine
from sqlalchemy.pool import QueuePool

from app.infra.db.database import Database
from app.infra.deadlines import Deadline
from app.infra.errors import ClientLeft, TooMuch
from app.infra.http.turns import Turns
from app.kinship.graph import FoundGraph, GraphService
from app.kinship.graph_edges import EdgeFinder, GraphModels
from app.main import create_app
from app.search import comparer, similarity
from modelkin import Support
from modelkin.core.kinship.membership import TargetIndices
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.distances import MatrixDistances, SignatureDistances
from modelkin.core.similarity.edges import exact_similarity, nearest_pairs, pairs_from
from modelkin.core.similarity.matrix import matrix
from modelkin.types.kinship import Graph
from tests.support.app.harness import AppHarness, open_app
from tests.support.http_space import SUPPORT, family

M = 5000
SUPPORTS = family(7, M, 300, 40)


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service that has no time for any answer, with a space of forty models."""
    with open_app(tmp_path_factory.mktemp("hurried"), query_timeout_seconds=1e-9) as app:
        app.create_space("s", M)
        for name, support in SUPPORTS.items():
            app.put_support("s", name, support)
        yield app


def test_a_graph_has_what_was_found_in_time(hurried: AppHarness) -> None:
    found = hurried.http.get("/v1/spaces/s/graph", params={"k": 3}).json()
    assert found["graph"]["truncated"]
    assert len(found["nodes"]) == len(SUPPORTS)
    assert found["edges"] == []
    drawn = hurried.http.get("/v1/spaces/s/graph", headers={"Accept": "application/graphml+xml"})
    assert '<data key="truncated">true</data>' in drawn.text


def test_an_exact_search_answers_the_best_that_it_has_compared(hurried: AppHarness) -> None:
    for asked in (
        hurried.http.get("/v1/spaces/s/neighbors", params={"model": "m000", "method": "exact"}),
        hurried.http.post(
            "/v1/spaces/s/neighbors",
            params={"method": "exact"},
            content=SUPPORTS["m000"].to_bytes(),
            headers={"Content-Type": SUPPORT},
        ),
    ):
        found = asked.raise_for_status().json()
        assert found["truncated"]
        assert found["candidates"] < len(SUPPORTS) - 1


@pytest.mark.parametrize("query", [{"k": 30}, {"method": "scan"}])
def test_any_search_ends_with_the_models_that_it_has_compared(
    hurried: AppHarness, query: dict[str, str]
) -> None:
    asked = {"model": "m000", **query}
    found = hurried.http.get("/v1/spaces/s/neighbors", params=asked).raise_for_status().json()
    assert found["truncated"]
    assert found["items"] == []
    donors = hurried.http.get("/v1/spaces/s/donors", params={"target": "m000"})
    assert donors.raise_for_status().json()["truncated"]


@pytest.mark.parametrize("method", ["cover", "idf"])
def test_donors_are_of_those_that_were_compared(hurried: AppHarness, method: str) -> None:
    query = {"target": "m000", "method": method}
    found = hurried.http.get("/v1/spaces/s/donors", params=query).raise_for_status().json()
    assert found["truncated"]
    assert found["items"] == []


def test_a_matrix_that_takes_too_long_says_what_would_do(hurried: AppHarness) -> None:
    answer = hurried.http.post("/v1/spaces/s/similarity", json={"models": [*SUPPORTS]})
    assert (503, "too_much") == (answer.status_code, answer.json()["code"])
    assert "retry-after" not in answer.headers, "it would take as long again"
    assert "models at a time" in answer.json()["detail"]
    assert "MODELKIN_QUERY_TIMEOUT_SECONDS" in answer.json()["detail"]


def test_a_lineage_that_takes_too_long_says_what_would_do(hurried: AppHarness) -> None:
    answer = hurried.http.get("/v1/spaces/s/lineage", params={"model": "m000"})
    assert (503, "too_much") == (answer.status_code, answer.json()["code"])
    assert "neighbors" in answer.json()["detail"]


@pytest.mark.slow
def test_an_answer_in_time_is_whole(tmp_path: Path) -> None:
    with open_app(tmp_path) as app:
        app.create_space("s", M)
        for name, support in SUPPORTS.items():
            app.put_support("s", name, support)
        graph = app.http.get("/v1/spaces/s/graph", params={"k": 3}).json()
        exact = app.http.get("/v1/spaces/s/neighbors", params={"model": "m000", "method": "exact"})
        donors = app.http.get("/v1/spaces/s/donors", params={"target": "m000", "method": "cover"})
    truncated = graph["graph"], exact.json(), donors.json()
    assert [False] * 3 == [answer["truncated"] for answer in truncated]


# --- loops over tiles -------------------------------------------------------------------------


class Patience:
    """Is over after some questions."""

    def __init__(self, questions: int) -> None:
        self.left = questions

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_loops_end_between_their_parts_with_the_first_of_their_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is returned is a beginning of the whole result, of one part for each answer of no."""
    monkeypatch.setattr("modelkin.core.similarity.distances._BLOCK_SIZE", 40 * 8)  # five blocks
    packed = [PackedSupport.pack(support) for support in SUPPORTS.values()]
    similarity = matrix(packed)
    distances = MatrixDistances(similarity)
    whole = nearest_pairs(distances, 3)
    some = nearest_pairs(distances, 3, Patience(2))
    pairs = {tuple(pair) for pair in whole.ends.tolist()}
    assert {tuple(pair) for pair in some.ends.tolist()} < pairs
    assert set(range(16)) <= set(some.ends.ravel().tolist()), "two blocks of eight models"
    beyond, part = (pairs_from(distances, 0.2, 10_000, stop) for stop in (None, Patience(3)))
    assert beyond is not None
    assert part is not None
    assert part.ends.tolist() == beyond.ends[: len(part)].tolist()
    assert 0 < len(part) < len(beyond)
    for done in (0, 1, 7):
        first = exact_similarity(dict(enumerate(packed)), whole.ends, Patience(done))
        assert first.size < len(whole)
        a, b = whole.ends[: first.size].T
        assert np.array_equal(first, similarity[a, b])


def test_estimates_of_long_signatures_end_between_small_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A distance from 4096 values takes as long as 16 from 256: so much fewer are in a block."""
    monkeypatch.setattr("modelkin.core.similarity.distances._BLOCK_SIZE", 40 * 8 * 16)
    rows, before = list[int](), SignatureDistances.block

    def count(of: SignatureDistances, some: Any, columns: Any = None) -> Any:
        rows.append(len(some))
        return before(of, some, columns)

    monkeypatch.setattr(SignatureDistances, "block", count)
    values = np.zeros((40, 4096), np.uint32)
    models = GraphModels([f"m{i}" for i in range(40)], values, [None] * 40, 1, whole_matrix=True)
    found = EdgeFinder(models, Deadline(60, Patience(2))).nearest(3)
    assert ([8, 8], 0) == (rows, len(found.pairs))
    rows.clear()
    assert 40 <= len(EdgeFinder(models).nearest(3).pairs)
    assert [8] * 5 == rows


@pytest.mark.parametrize(("m", "k"), [(3000, 300), (3_000_000, 300)])
def test_a_matrix_can_be_ended(m: int, k: int) -> None:
    """Of bitmaps and of lists: an error of the report ends it."""
    rng = np.random.default_rng(1)
    indices = (np.sort(rng.choice(m, k, replace=False)) for _ in range(5))
    packed = [PackedSupport.pack(Support.from_indices(each, m)) for each in indices]

    def refuse(_done: int, _total: int) -> None:
        raise TooMuch("enough")

    with pytest.raises(TooMuch):
        matrix(packed, refuse)


# --- hang-ups ---------------------------------------------------------------------------------


async def ask_and_hang_up(app: Any, after_s: float) -> tuple[float, int]:
    """Ask for a graph and leave: the seconds until the service is done, and its status."""
    sent = asyncio.Event()
    left_at, status = 0.0, 0

    async def receive() -> dict[str, Any]:
        nonlocal left_at
        if not sent.is_set():
            sent.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(after_s)
        left_at = time.monotonic()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": "/v1/spaces/s/graph",
        "raw_path": b"/v1/spaces/s/graph",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "root_path": "",
    }
    await app(scope, receive, send)
    return time.monotonic() - left_at, status


def compute_on(*_: Any, deadline: Deadline, **__: Any) -> FoundGraph:
    """A graph that takes as long as it may."""
    for _round in deadline.until(itertools.count()):
        time.sleep(0.01)
    deadline.require_client()
    return FoundGraph(Graph(nodes=(), edges=(), version=0, truncated=True))


@pytest.mark.slow
def test_a_client_that_hangs_up_ends_its_computation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that computes ends, and those that wait for their turn never begin."""
    begun = 0

    def count(*arguments: Any, **more: Any) -> FoundGraph:
        nonlocal begun
        begun += 1
        return compute_on(*arguments, **more)

    monkeypatch.setattr(GraphService, "graph", count)
    with open_app(tmp_path) as harness:
        harness.create_space("s", M)
        app = create_app(harness.services)
        turns = next(each for each in app.state.services if isinstance(each, Turns))

        async def crowd() -> list[tuple[float, int]]:
            return await asyncio.gather(*(ask_and_hang_up(app, 0.3) for _ in range(12)))

        ended = asyncio.run(crowd())
    assert max(seconds for seconds, _ in ended) < 3, "the deadline is after ten seconds"
    assert {status for _, status in ended} == {400}
    assert begun <= turns.of("heavy").size
    assert (turns.of("heavy").held, turns.of("heavy").waiting) == (0, 0)


@pytest.mark.slow
def test_readers_do_not_wait_for_heavy_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd of graphs takes the turns of its kind, and none of those of readers."""
    monkeypatch.setattr(GraphService, "graph", compute_on)
    with open_app(tmp_path, query_timeout_seconds=0.7, database_timeout_seconds=0.5) as harness:
        harness.create_space("s", M)
        transport = httpx.ASGITransport(create_app(harness.services))

        async def ask() -> list[int]:
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                crowd = [asyncio.create_task(http.get("/v1/spaces/s/graph")) for _ in range(24)]
                await asyncio.sleep(0.2)
                reads = [(await http.get("/v1/spaces/s")).status_code for _ in range(10)]
                await asyncio.wait(crowd)
                return reads

        assert [200] * 10 == asyncio.run(ask())


def connections_in_use(database: Database) -> int:
    """Of the pool for reading and writing."""
    with database.reading() as session:
        engine = session.get_bind()
        assert isinstance(engine, Engine)
        pool = engine.pool
    assert isinstance(pool, QueuePool)
    return pool.checkedout()


@pytest.mark.slow
def test_no_view_of_the_database_is_held_while_an_answer_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def counting(module: Any, name: str) -> None:
        before = getattr(module, name)

        def count(*arguments: Any, **more: Any) -> Any:
            held.append(connections_in_use(harness.database))
            return before(*arguments, **more)

        monkeypatch.setattr(module, name, count)

    with open_app(tmp_path) as harness:
        harness.create_space("s", M)
        for name, support in SUPPORTS.items():
            harness.put_support("s", name, support)
        counting(EdgeFinder, "nearest")
        counting(similarity, "matrix")
        counting(comparer, "_exact_neighbor")
        counting(TargetIndices, "membership_bits")
        path = "/v1/spaces/s"
        harness.http.get(f"{path}/graph").raise_for_status()
        harness.http.post(f"{path}/similarity", json={"models": ["m001", "m002"]})
        exact = {"model": "m000", "method": "exact"}
        harness.http.get(f"{path}/neighbors", params=exact).raise_for_status()
        cover = {"target": "m000", "method": "cover"}
        harness.http.get(f"{path}/donors", params=cover).raise_for_status()
    assert len(held) == 2 * len(SUPPORTS)
    assert set(held) == {0}


def test_a_deadline_says_why_it_ends() -> None:
    late, left = Deadline(0), Deadline(60, lambda: True)
    assert late.passed()
    assert left.passed()
    assert not Deadline(60).passed()
    with pytest.raises(TooMuch, match=r"this graph took longer .* ask for less"):
        late.require("this graph", "ask for less")
    late.require_client()
    with pytest.raises(ClientLeft):
        left.require("this graph", "ask for less")
    assert [] == list(late.until([1, 2]))
    assert [1, 2] == list(Deadline(60).until([1, 2]))
