"""put_many against a real service: killed in the middle and resumed, and in a space beyond 2^32."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkin
from modelkin import BulkItem, BulkResult, Client, Support
from modelkin.errors import ConnectionFailed
from tests.sdk.draws import distinct
from tests.support.blocking_client import Connect
from tests.support.servers.server_process import Server

M = 10_000
WIDE = 8_000_000_000


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    """A service that keeps its address when it is started again."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = Server(tmp_path, f"--port={port}").start()
    yield running
    if running.process.is_alive():
        running.kill()


def models(n: int) -> Iterator[BulkItem]:
    """Supports and signatures alike, each its own, with a tag."""
    for number in range(n):
        support = Support.from_indices(np.arange(number % 50, M, 51 + number // 50), M)
        content = support.signature(num_perm=16) if number % 3 else support
        yield BulkItem(f"org/m{number}", content, ["r1"], {"n": number})


@pytest.mark.slow
def test_killed_and_resumed(service: Server, connect: Connect, tmp_path: Path) -> None:
    """After kill -9 in the middle the same call again leaves every model once, each right."""
    done: list[BulkResult] = []

    def kill(result: BulkResult) -> None:
        done.append(result)
        if len(done) == 300:
            service.kill()

    options: dict[str, Any] = {"batch_size": 40, "resume": tmp_path / "journal"}
    with connect(service.url, retries=0) as client:
        spec = modelkin.SignatureSpec(num_perm=16)
        client.ensure_space("s", num_parameters=M, signature=spec)
        with pytest.raises(ConnectionFailed):
            client.put_many("s", models(1000), on_result=kill, **options)
    service.start()
    with connect(service.url) as client:
        summary = client.put_many("s", models(1000), **options)
        assert (1000, 0) == (summary.total, summary.failed)
        assert 300 <= summary.skipped < 1000
        found = {model.model: model for model in client.models.list("s")}
    assert {item.model for item in models(1000)} == found.keys()
    assert {1} == {model.revision for model in found.values()}
    assert all(found[f"org/m{n}"].attributes == {"n": n} for n in range(1000))


@pytest.mark.slow
def test_beyond_32_bits(service: Server, connect: Connect) -> None:
    """Supports of a million among 8e9 indices arrive with small ones and find their kin."""
    rng = np.random.default_rng(4)
    drawn = distinct(rng.integers(0, WIDE, 1_300_000, dtype=np.uint64))[:1_200_000]
    wide = [Support.from_indices(drawn[start : start + 10**6], WIDE) for start in (0, 100_000)]
    small = Support.from_indices(drawn[::1000], WIDE)
    items = [("a", wide[0]), ("small", small), ("b", wide[1]), ("alone", wide[0].signature())]
    with connect(service.url) as client:
        client.ensure_space("wide", num_parameters=WIDE)
        assert 4 == client.put_many("wide", items).created
        assert 4 == client.put_many("wide", items).unchanged
        assert wide[1] == client.supports.get("wide", "b")
        best = client.neighbors("wide", "a", k=2)
    assert [("alone", 1.0, "signature"), ("b", 0.9, "exact")] == [
        (n.model, n.similarity, n.estimate) for n in best
    ]


@pytest.mark.slow
def test_asynchronous_items(service: Server) -> None:
    """AsyncClient takes items as they come, and a cancelled upload leaves it as good as before."""

    async def endless() -> Any:
        for item in models(10**9):
            yield item

    async def upload() -> int:
        async with modelkin.AsyncClient(service.url) as client:
            spec = modelkin.SignatureSpec(num_perm=16)
            await client.ensure_space("s", num_parameters=M, signature=spec)
            putting = asyncio.create_task(client.put_many("s", endless(), batch_size=20))
            while not (await client.spaces.get("s")).models:
                await asyncio.sleep(0.05)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
            return (await client.put_many("s", [("one", next(models(1)).content)])).total

    assert 1 == asyncio.run(upload())
    with Client(service.url) as client:
        stored = [
            model.attributes["n"] for model in client.models.list("s") if model.model != "one"
        ]
    assert stored
    assert len(stored) == len(set(stored))
