"""Small fingerprints, and the services that store them."""

from __future__ import annotations

import pytest

from app.container import Container
from tests.support.app.fingerprints import StoredFingerprints


@pytest.fixture
def stored(services: Container) -> StoredFingerprints:
    """The fingerprints of a tenant of its own."""
    return StoredFingerprints(services)
