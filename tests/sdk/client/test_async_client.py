"""What only the asynchronous client promises: many calls at once, and calls given up midway."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin.client import AsyncClient, AsyncListing, Client, Listing
from modelkin.core.support import Support
from modelkin.errors import ConnectionFailed
from tests.sdk.client.operations import operations
from tests.support.client_clock import set_async_clock

SUPPORT = Support.from_indices([2, 5, 7], 100)
HERE = operations(Client("http://kin.test")) | {"__init__": Client.__init__}
THERE = operations(AsyncClient("http://kin.test")) | {"__init__": AsyncClient.__init__}


def client_of(
    handle: Callable[[httpx.Request], Coroutine[None, None, httpx.Response]], **clock: Any
) -> Any:
    """An AsyncClient whose requests reach a coroutine of the test."""
    client = AsyncClient("http://kin.test", transport=httpx.MockTransport(handle))
    return set_async_clock(client, **clock) if clock else client


def named(request: httpx.Request, model_json: dict[str, Any]) -> httpx.Response:
    """The model that was asked for."""
    return httpx.Response(200, json=model_json | {"model": request.url.path.rpartition("/")[2]})


@pytest.mark.parametrize("method", sorted(HERE))
def test_the_methods_are_the_same(method: str) -> None:
    """Every method has the same arguments, defaults and types in both clients.

    An async client takes async iterables besides.
    """
    here, there = (inspect.signature(methods[method]) for methods in (HERE, THERE))
    assert [str(p) for p in here.parameters.values() if p.name != "transport"] == [
        str(p).replace("AsyncItems", "Items")
        for p in there.parameters.values()
        if p.name != "transport"
    ]
    assert str(here.return_annotation) == str(there.return_annotation).removeprefix("Async")


def test_there_are_no_other_methods() -> None:
    """Neither client can do what the other cannot."""
    assert HERE.keys() == THERE.keys()
    listings = ({n for n in vars(c) if not n.startswith("_")} for c in (Listing, AsyncListing))
    assert next(listings) == next(listings)


@pytest.mark.parametrize("method", sorted(HERE))
def test_every_method_says_what_it_takes_and_raises(method: str) -> None:
    """Each docstring explains every argument, in both clients, and names no other colour."""
    for methods, other in ((HERE, r"\bawait\b|\basync\b|Async"), (THERE, r"modelkin\.Client\b")):
        text = inspect.getdoc(methods[method]) or ""
        arguments = inspect.signature(methods[method]).parameters
        assert text
        assert [] == [name for name in arguments if name != "self" and f"{name}: " not in text]
        assert re.search(other, text) is None


async def _fifty(handle: Any, model_json: dict[str, Any]) -> list[str]:
    async with client_of(handle) as client:
        puts = (client.put_support("digits", f"m{n}", SUPPORT) for n in range(50))
        return [info.model for info in await asyncio.gather(*puts)]


def test_fifty_uploads_at_once(model_json: dict[str, Any]) -> None:
    """Tasks share a client: all their requests are under way together, and none is mixed up."""
    all_here = asyncio.Barrier(50)

    async def handle(request: httpx.Request) -> httpx.Response:
        await all_here.wait()
        return named(request, model_json)

    assert [f"m{n}" for n in range(50)] == asyncio.run(_fifty(handle, model_json))


def test_retries_of_one_do_not_hold_up_another(model_json: dict[str, Any]) -> None:
    """Each call counts its own tries, however they interleave."""
    tries: dict[str, int] = {}

    async def handle(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        tries[path] = tries.get(path, 0) + 1
        await asyncio.sleep(0)
        if tries[path] <= int(path[-1]) % 4:
            return httpx.Response(503)
        return named(request, model_json)

    async def main() -> int:
        async with client_of(handle, jitter=lambda: 0.0) as client:
            names = [f"m{n}" for n in range(50)]
            return len(await asyncio.gather(*(client.models.get("digits", name) for name in names)))

    assert 50 == asyncio.run(main())
    assert all(count == int(path[-1]) % 4 + 1 for path, count in tries.items())


@pytest.mark.parametrize("where", ["request", "pause"])
def test_a_call_may_be_given_up(where: str, model_json: dict[str, Any]) -> None:
    """A call cancelled as it waits, for an answer or a next try, leaves a client that works."""
    asked: list[str] = []

    async def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if len(asked) > 1:
            return named(request, model_json)
        if where == "request":
            await asyncio.Event().wait()
        return httpx.Response(503)

    async def main() -> str:
        async with client_of(handle, sleep=lambda seconds: asyncio.Event().wait()) as client:
            given_up = asyncio.create_task(client.put_support("digits", "a", SUPPORT))
            while not asked:
                await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            return str((await client.models.get("digits", "b")).model)

    assert "b" == asyncio.run(main())
    assert 2 == len(asked)


class Stalled:
    """A server that only reads, and answers nothing, until the other side leaves."""

    def __init__(self) -> None:
        self.came, self.left = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.release()
        while await reader.read(1 << 16):
            continue
        writer.close()
        self.left.release()


def test_a_cancelled_upload_gives_its_connection_back() -> None:
    """Uploads cancelled over real sockets leave no connection open behind them."""
    support = Support.from_indices(range(0, 10**6, 3), 10**6)

    async def main() -> None:
        stalled = Stalled()
        async with await asyncio.start_server(stalled.serve, "127.0.0.1", 0) as server:
            client = AsyncClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            uploads = asyncio.gather(
                *(client.put_support("s", f"m{n}", support) for n in range(20))
            )
            for _ in range(20):
                await asyncio.wait_for(stalled.came.acquire(), 20)
            uploads.cancel()
            for _ in range(20):
                await asyncio.wait_for(stalled.left.acquire(), 20)
            with pytest.raises(asyncio.CancelledError):
                await uploads
            await client.close()

    asyncio.run(main())


def test_a_caller_may_bound_the_whole() -> None:
    """asyncio.timeout ends a call in the midst of its retries."""

    async def handle(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async def main() -> None:
        async with client_of(handle, sleep=asyncio.sleep) as client, asyncio.timeout(0.01):
            await client.spaces.get("digits")

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_supports_are_encoded_and_decoded_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop's own thread neither encodes an upload nor decodes a large download."""
    big = Support.from_indices(np.flatnonzero(np.random.default_rng(2).random(10**7) < 0.1), 10**7)
    data = big.to_bytes()
    threads: dict[str, int] = {}
    for name in ("encode_support", "decode_support"):
        _spy(monkeypatch, name, threads)
    media = {"content-type": "application/vnd.modelkin.support"}

    async def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            raise httpx.ReadTimeout("")
        return httpx.Response(200, content=data, headers=media)

    async def main() -> Support:
        async with client_of(handle) as client:
            with pytest.raises(ConnectionFailed):
                await client.put_support("s", "a", SUPPORT)
            return await client.supports.get("s", "a")  # type: ignore[no-any-return]

    assert big == asyncio.run(main())
    assert {"encode_support", "decode_support"} == threads.keys()
    assert threading.get_ident() not in threads.values()


def _spy(monkeypatch: pytest.MonkeyPatch, name: str, threads: dict[str, int]) -> None:
    from modelkin import wire

    original = getattr(wire, name)

    def noted(*arguments: Any, **options: Any) -> Any:
        threads[name] = threading.get_ident()
        return original(*arguments, **options)

    monkeypatch.setattr(wire, name, noted)


def test_a_listing_may_be_left_early(model_json: dict[str, Any]) -> None:
    """Pages come as they are read: a loop that stops in the first asks for no second."""
    asked: list[httpx.Request] = []

    async def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"items": [model_json] * 3, "next_cursor": "x"})

    async def main() -> None:
        async with client_of(handle) as client:
            async for _ in client.models.list("digits"):
                break

    asyncio.run(main())
    assert 1 == len(asked)
