"""What callbacks push to: a real service, and services that are away or never answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from uuid import uuid4

import httpx
import pytest
import torch

import modelkin
from modelkin.integrations._background_uploader import UPLOADER_THREAD
from tests.support.client_clock import set_clock
from tests.support.servers.server_process import Server


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Several threads would wait for each other, over sums as little as these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _no_uploader_is_left() -> Iterator[None]:
    """An uploader that a test leaves behind would write into the log of the next one.

    This fixture ends after those that let a stuck task go on.
    """
    yield
    for thread in threading.enumerate():
        if thread.name == UPLOADER_THREAD:
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture(scope="session")
def server(sqlite_server: Server) -> Server:
    """The service that the tests share, each with a space of its own."""
    return sqlite_server


@pytest.fixture
def client(server: Server) -> Iterator[modelkin.Client]:
    with modelkin.Client(server.url) as client:
        yield client


@pytest.fixture
def space() -> str:
    """A new name for a space."""
    return f"s{uuid4().hex}"


class Wire:
    """Carries requests to a function, and counts them."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        self._answer = answer
        self.requests: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        return self._answer(request)

    def client(self) -> modelkin.Client:
        """A client that does not wait between its attempts."""
        return set_clock(modelkin.Client("http://kin.test", transport=httpx.MockTransport(self)))


@pytest.fixture
def away() -> Wire:
    """A service that no connection reaches."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    return Wire(refuse)


@pytest.fixture
def stuck() -> Iterator[Wire]:
    """A service that takes requests and answers none until the test is over."""
    over = threading.Event()

    def hang(request: httpx.Request) -> httpx.Response:
        over.wait(30)
        raise httpx.ReadTimeout("no answer", request=request)

    yield Wire(hang)
    over.set()
