"""Reads of a row or two: threads of their own, and others once these are stuck."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

from app.infra.db.prepared import Prepared
from app.infra.http.short_reads import ShortReads
from tests.support.app.harness import AppHarness, open_app
from tests.support.http_space import random_support

M = 1000
SHORT = ["/v1/spaces/s/models/m", "/v1/spaces/s", "/readyz"]
OTHERS = ["/v1/spaces/s/models", "/v1/spaces/s/neighbors?model=m", "/v1/spaces/s/supports/m"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service with a space of one model, which has tags."""
    with open_app(tmp_path_factory.mktemp("short")) as harness:
        harness.create_space("s", M)
        harness.put_support("s", "m", random_support(np.random.default_rng(1), M, 50))
        tags = {"tags": ["b", "a"]}
        harness.http.patch("/v1/spaces/s/models/m", json=tags).raise_for_status()
        yield harness


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """What was handed to the threads of short reads."""
    seen: list[Callable[..., Any]] = []
    call = ShortReads.call

    async def count(self: ShortReads, function: Callable[[], Any]) -> Any:
        seen.append(function)
        return await call(self, function)

    monkeypatch.setattr(ShortReads, "call", count)
    return seen


@pytest.mark.parametrize("path", SHORT)
def test_a_row_is_read_by_a_thread_of_short_reads(
    filled: AppHarness, calls: list[Callable[..., Any]], path: str
) -> None:
    assert 200 == filled.http.get(path).status_code
    assert 1 == len(calls)


@pytest.mark.parametrize("path", OTHERS)
def test_what_may_take_long_is_not(
    filled: AppHarness, calls: list[Callable[..., Any]], path: str
) -> None:
    assert 200 == filled.http.get(path).status_code
    assert [] == calls


def test_an_unchanged_model_is_one_row_and_no_tags(
    filled: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Prepared] = []
    read_all = Prepared.all

    def note(self: Prepared, session: Any, **values: object) -> list[Any]:
        read.append(self)
        return read_all(self, session, **values)

    monkeypatch.setattr(Prepared, "all", note)
    whole = filled.http.get("/v1/spaces/s/models/m")
    assert ["a", "b"] == whole.json()["tags"]
    statements = read.copy()
    read.clear()
    known = {"If-None-Match": whole.headers["etag"]}
    unchanged = filled.http.get("/v1/spaces/s/models/m", headers=known)
    assert (304, b"") == (unchanged.status_code, unchanged.content)
    assert whole.headers["etag"] == unchanged.headers["etag"]
    assert statements[:-1] == read, "all but the last one, of its tags"


def test_a_read_that_is_stuck_holds_up_no_other() -> None:
    """With its only thread taken, the next calls are those of other threads."""

    async def ask() -> list[int]:
        reads = ShortReads(1, timeout=0.001)
        go_on = threading.Event()
        stuck = asyncio.create_task(reads.call(go_on.wait))
        await asyncio.sleep(0)
        try:
            others = [reads.call(threading.get_ident) for _ in range(5)]
            return list(await asyncio.wait_for(asyncio.gather(*others), 30))
        finally:
            go_on.set()
            assert await stuck

    assert 5 == len(asyncio.run(ask()))


class Refused(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "raised"),
    [(Refused, Refused), (SystemExit, SystemExit), (StopIteration, RuntimeError)],
)
def test_what_a_call_raises_is_raised_to_its_caller(
    error: type[BaseException], raised: type[BaseException]
) -> None:
    """And its thread goes on. A coroutine cannot raise ``StopIteration``: Python renames it."""

    def refuse() -> None:
        raise error("no")

    async def ask() -> bool:
        reads = ShortReads(1)
        with pytest.raises(raised):
            await reads.call(refuse)
        return await reads.call(lambda: True)

    assert asyncio.run(ask())


WHO: ContextVar[str] = ContextVar("WHO", default="none")


def test_a_call_sees_the_context_of_its_caller() -> None:
    async def ask() -> str:
        WHO.set("caller")
        return await ShortReads(1).call(WHO.get)

    assert "caller" == asyncio.run(ask())


def test_the_threads_end_with_their_service() -> None:
    async def ask() -> list[threading.Thread]:
        reads = ShortReads(3)
        found = [await reads.call(threading.current_thread) for _ in range(9)]
        assert all(each.is_alive() for each in found)
        return found

    used = asyncio.run(ask())
    gc.collect()
    for each in used:
        each.join(30)
    assert not any(each.is_alive() for each in used)
