"""A client that was used before a fork: each process gets its own answers, and harms no other."""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
import threading
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from modelkin import AsyncClient, Blinding, Client, SplitClient, Support
from modelkin.client._transport import config, embedded
from modelkin.errors import InvalidParameter
from modelkin.integrations._background_uploader import BackgroundUploader
from tests.sdk.client.transport.tls_server import TlsServer
from tests.support.forks import forked
from tests.support.servers.server_process import Server

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

SUPPORT = Support.from_indices(range(10), 1000)


@pytest.fixture(scope="module")
def space(sqlite_server: Server) -> str:
    """A space with a model for each of six processes."""
    name = f"forks-{uuid.uuid4().hex[:8]}"
    with Client(sqlite_server.url) as client:
        client.ensure_space(name, num_parameters=1000)
        for at in range(6):
            client.put_support(name, f"m/{at}", SUPPORT)
    return name


def models(client: Client, space: str, at: int, times: int) -> set[str]:
    return {client.models.get(space, f"m/{at}").model for _ in range(times)}


async def models_async(client: AsyncClient, space: str, at: int, times: int) -> set[str]:
    return {(await client.models.get(space, f"m/{at}")).model for _ in range(times)}


def test_answers_are_those_of_the_process(sqlite_server: Server, space: str) -> None:
    """Four processes read fifty times each, while their parent does: no answer is another's."""
    with Client(sqlite_server.url) as client:
        mine = models(client, space, 4, 1)
        found = forked(
            lambda at: models(client, space, at, 50),
            range(4),
            lambda: mine.update(models(client, space, 4, 50)),
        )
        assert [{f"m/{at}"} for at in range(4)] == found
        assert {"m/4"} == mine


@pytest.mark.slow
def test_answers_of_an_async_client(sqlite_server: Server, space: str) -> None:
    """The same over AsyncClient, in an event loop of each process."""
    with asyncio.Runner() as runner:
        client = AsyncClient(sqlite_server.url)
        mine = runner.run(models_async(client, space, 4, 1))
        found = forked(
            lambda at: asyncio.run(models_async(client, space, at, 25)),
            range(4),
            lambda: mine.update(runner.run(models_async(client, space, 4, 25))),
        )
        runner.run(client.close())
    assert [{f"m/{at}"} for at in range(4)] == found
    assert {"m/4"} == mine


@pytest.mark.slow
def test_puts_are_those_of_the_process(sqlite_server: Server, space: str) -> None:
    """Uploads, whole and as patches, answer about the model that was sent, and it is stored."""
    with Client(sqlite_server.url) as client:
        client.put_support(space, "m/5", SUPPORT)

        def put(at: int) -> set[tuple[str, bool]]:
            sent = [Support.from_indices(range(at, at + n), 1000) for n in range(300, 315)]
            stored = [client.put_support(space, f"m/{at}", support) for support in sent]
            return {(s.model, s.digest == t.digest) for s, t in zip(stored, sent, strict=True)}

        found = forked(put, range(4), lambda: put(5))
        assert [{(f"m/{at}", True)} for at in range(4)] == found


@pytest.mark.slow
def test_a_fork_within_the_calls_of_other_threads(sqlite_server: Server, space: str) -> None:
    """Locks that other threads hold at the time of the fork hold up no process."""
    ended = threading.Event()
    with Client(sqlite_server.url) as client:

        def call() -> None:
            while not ended.is_set():
                client.models.get(space, "m/4")
                client.put_support(space, "m/5", SUPPORT)

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            found = [forked(lambda at: models(client, space, at, 3), [at])[0] for at in range(4)]
        finally:
            ended.set()
            for thread in threads:
                thread.join()
    assert [{f"m/{at}"} for at in range(4)] == found


@pytest.mark.slow
def test_a_close_in_a_process_is_of_that_process(sqlite_server: Server, space: str) -> None:
    """The client of the parent goes on, and a grandchild has its own connections, too."""
    with Client(sqlite_server.url) as client:
        models(client, space, 0, 1)

        def use_and_close(at: int) -> Any:
            inner = forked(lambda other: models(client, space, other, 5), [at + 1])
            with client:
                return inner, models(client, space, at, 5)

        assert [([{"m/3"}], {"m/2"})] == forked(use_and_close, [2])
        assert {"m/0"} == models(client, space, 0, 5)


def test_connections_by_tls_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A child's use, close and end leave the parent's connection as it is: it takes no second."""
    with TlsServer(tmp_path) as server:

        def authorities(trust_env: bool) -> ssl.SSLContext:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(server.authority)
            return context

        monkeypatch.setattr(config, "authorities", authorities)
        with Client(server.url) as client:
            assert client.ready()

            def use(close: bool) -> bool:
                found = client.ready()
                if close:
                    client.close()
                return found

            def close(_: int) -> bool:
                client.close()
                return True

            assert [True, True] == forked(use, [False, True])
            assert [True] == forked(close, [0])
            assert client.ready()
        assert [2, 1, 1] == server.requests_of_connections


def test_a_transport_of_the_caller_is_not_shared(sqlite_server: Server) -> None:
    """A process cannot have new connections of it, and says so; the parent goes on."""
    carrier = httpx.HTTPTransport(trust_env=False)
    with Client(sqlite_server.url, transport=carrier) as client:
        assert client.ready()
        (found,) = forked(lambda _: client.ready(), [0])
        assert "make a client in each process" in found
        assert InvalidParameter.__name__ in found
        assert client.ready()


def test_split_clients(sqlite_server: Server) -> None:
    """The threads of a split client stay with the parent: each process has its own."""
    with SplitClient(
        [Client(sqlite_server.url), Client(sqlite_server.url)], Blinding.new_key()
    ) as split:
        with pytest.raises(Exception, match=r"not found|no space"):
            split.signature("none-such", "a")

        def ask(_: int) -> str:
            try:
                split.signature("none-such", "a")
            except Exception as error:
                return type(error).__name__
            return ""

        assert ["NotFoundError"] * 2 == forked(ask, range(2))


def test_uploads_in_the_background() -> None:
    """The queue and thread of an uploader stay with the parent: a process has its own."""
    done = threading.Event()
    uploader = BackgroundUploader(flush_seconds=10)
    uploader.submit("a", done.set)
    assert done.wait(10)

    def upload(_: int) -> tuple[bool, bool]:
        ran = threading.Event()
        uploader.submit("b", ran.set)
        return ran.wait(10), uploader.close()

    assert [(True, True)] == forked(upload, [0])
    assert uploader.close()


@pytest.mark.long
@pytest.mark.slow
def test_an_embedded_service_is_of_its_process(tmp_path: Path) -> None:
    """Processes use it, before it has answered their parent too, and their close leaves it."""
    for made in ({"url": ":memory:"}, {"path": tmp_path / "kin"}):
        with Client(**made) as client:

            def use(at: int, client: Client = client) -> str:
                with client:
                    client.ensure_space(f"s-{at}", num_parameters=1000)
                    return client.put_support(f"s-{at}", "m", SUPPORT).model

            assert ["m", "m"] == forked(use, range(2))
            assert ["s-0", "s-1"] == sorted(space.name for space in client.spaces.list())
            assert ["m"] == forked(use, [2])
            client.put_support("s-0", "n", SUPPORT)


@pytest.mark.slow
def test_a_process_that_lives_holds_no_embedded_service_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's close ends its service, and does not wait for a process that has its pipe."""
    monkeypatch.setattr(embedded, "_STOP_TIMEOUT_S", 600.0)
    closed = multiprocessing.get_context("fork").Event()
    client = Client(path=tmp_path / "kin")
    client.ensure_space("s", num_parameters=1000)

    def close() -> None:
        client.close()
        closed.set()

    assert [True] == forked(lambda _: closed.wait(50), [0], close)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{client.url}/livez", trust_env=False)
