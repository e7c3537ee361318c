"""Services with planted families."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.anatomy.families import Family, derived, stranger
from tests.support.app.harness import open_app
from tests.support.backends import Backend


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, backend: Backend) -> Iterator[Family]:
    """A base and a stranger from a hub, a copy and a child of the base; tests change nothing."""
    with open_app(tmp_path_factory.mktemp("hub"), backend) as app:
        family = Family(app)
        family.put("org/base", stranger(0), stated_by="hub")
        family.put("org/stranger", stranger(1), stated_by="hub")
        family.put("org/copy", derived("renamed"))
        family.put("org/child", derived("fused"))
        yield family


@pytest.fixture
def family(tmp_path: Path, backend: Backend) -> Iterator[Family]:
    """A service of its own, without fingerprints."""
    with open_app(tmp_path, backend, egress_allow="127.0.0.1") as app:
        yield Family(app)
