"""The service on each database, without workers: what is enqueued waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hooks.office import Office, open_office
from tests.service.backends import Backend
from tests.service.conftest import backend, postgres

__all__ = ["backend", "postgres"]


@pytest.fixture(scope="module")
def office(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """For all tests of a module; each makes sources of its own."""
    folder = tmp_path_factory.mktemp("office")
    with open_office(folder, backend) as opened:
        yield opened
