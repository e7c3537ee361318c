"""A hub on loopback, services that ingest its models, and services without workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backends import Backend
from tests.support.fake_huggingface import Hub, loopback_hub
from tests.support.incoming_harness import Office, open_office
from tests.support.ingestion_harness import Desk, open_desk


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A Hugging Face hub without a model."""
    with loopback_hub() as hub:
        yield hub


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A service without a model."""
    with open_desk(tmp_path) as desk:
        yield desk


@pytest.fixture(scope="module")
def office(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """For all tests of a module; each makes sources of its own."""
    folder = tmp_path_factory.mktemp("office")
    with open_office(folder, backend) as opened:
        yield opened
