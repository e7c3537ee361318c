"""A hub on loopback, services that ingest its models, and services without workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.app.harness import AppHarness, open_app, open_hub_app
from tests.support.backends import Backend


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppHarness]:
    """A service without a model."""
    with open_hub_app(tmp_path) as app:
        yield app


@pytest.fixture(scope="module")
def service(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service that the tests of a module share; each creates sources of its own."""
    folder = tmp_path_factory.mktemp("service")
    with open_app(folder, backend) as opened:
        yield opened
