"""What is maintained is a database of this version."""

from __future__ import annotations

import pytest

from app.infra.db.database import Database


@pytest.fixture
def database(migrated: Database) -> Database:
    """A new database of this version."""
    return migrated
