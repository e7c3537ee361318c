"""Spaces of the shared service, and the services of one process without endpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import modelkin
from app.bootstrap import open_services
from app.container import Container
from app.infra.errors import SpaceNotFound
from tests.support.app.harness import settings_of
from tests.support.app.space import AppSpace
from tests.support.backends import Backend
from tests.support.declared_problems import checked
from tests.support.http_space import Space
from tests.support.servers.server_process import Server


@pytest.fixture(scope="module")
def services(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The services on each database, for all tests of a module."""
    with open_services(settings_of(tmp_path_factory.mktemp("services"), backend)) as opened:
        yield opened


@pytest.fixture(scope="module")
def working(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that does its own jobs, on each database."""
    server = Server(tmp_path_factory.mktemp("working"), "--embedded-worker=on", backend=backend)
    yield server.start()
    assert server.stop() == 0, server.log.read_text()
    assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def working_http(working: Server) -> Iterator[httpx.Client]:
    """HTTP to that service."""
    with checked(httpx.Client(base_url=working.url, timeout=60, trust_env=False)) as client:
        yield client


@pytest.fixture
def app_space(services: Container) -> Iterator[AppSpace]:
    """An empty space."""
    made = AppSpace(services)
    yield made
    with contextlib.suppress(SpaceNotFound):
        made.drop()


@pytest.fixture(scope="module")
def guarded(http: httpx.Client) -> Iterator[tuple[Space, tuple[Any, Any]]]:
    """A space with one model, and both as they are shown; the service is ready after all tests."""
    space = Space(http)
    support = modelkin.Support.from_indices(range(0, space.m, 7), space.m)
    space.put("stored", support, tags=["t"])
    yield space, (space.show(), space.model("stored"))
    assert 200 == http.get("/readyz").status_code


@pytest.fixture
def untouched(guarded: tuple[Space, tuple[Any, Any]]) -> Iterator[Space]:
    """A space with one model, which whatever the tests of a module send may not change: the first
    of them to fail has changed it.
    """
    space, before = guarded
    yield space
    assert before == (space.show(), space.model("stored"))
