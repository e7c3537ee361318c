"""A hub on loopback, and a desk at which its models are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hubs.desk import Desk, open_desk
from tests.hubs.loopback import Hub, loopback_hub


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
