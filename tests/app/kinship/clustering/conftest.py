"""Spaces whose clusterings the tests carry out themselves."""

from __future__ import annotations

import pytest

from tests.support.app.space import AppSpace
from tests.support.models.planted_clusters import named, planted


@pytest.fixture
def kin(app_space: AppSpace) -> AppSpace:
    """Three groups of models: of 8, 6 and 4."""
    app_space.put(named(planted((8, 6, 4))[0]))
    return app_space
