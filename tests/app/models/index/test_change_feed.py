"""The change log of a space, read in pages straight from each database's driver."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text, update

from app.infra.db.database import Database
from app.infra.db.tables.catalog import ModelRow
from app.infra.errors import Unavailable
from app.models.index.repositories.changes import changed_ids, changed_since
from tests.app.models.index.test_warmup import locked
from tests.app.operations.maintenance.test_cleanup import Written, values
from tests.support.backends import PostgresBackend
from tests.support.servers.postgres import Postgres

PAGE = 4


@pytest.mark.parametrize("models", [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 3 * PAGE + 1])
def test_every_change_is_read_once(
    migrated: Database, monkeypatch: pytest.MonkeyPatch, models: int
) -> None:
    """Each model that changed is read once, in its present state; none of another space is read.

    That holds around the ends of pages, and for many models of one version.
    """
    monkeypatch.setattr("app.models.index.repositories.changes._PAGE_SIZE", PAGE)
    written, other = Written(migrated), Written(migrated, "other")
    for number in range(models):
        written.put(f"m{number}", value=number)
        other.put(f"m{number}", value=100 + number)
    with migrated.writing() as session:  # three versions for all of them
        shared = update(ModelRow).where(ModelRow.space_id == written.id)
        session.execute(shared.values(version=ModelRow.version % 3 + 1, content_id=ModelRow.id + 7))
    for since in range(4):
        with migrated.reading() as session:
            pages = list(changed_since(session, written.id, since))
            ids = changed_ids(session, written.id, since)
        listed = np.concatenate([np.empty(0, np.int64), *(page[0] for page in pages)])
        assert sorted(ids) == sorted(listed.tolist())
        assert len(ids) == sum(number % 3 >= since for number in range(1, models + 1))
        assert all((contents == found + 7).all() for found, contents, _ in pages)
    with migrated.reading() as session:
        found = b"".join(page[2] for page in changed_since(session, written.id, 0))
    assert sorted(values(number).tobytes() for number in range(models)) == sorted(
        found[at : at + 64] for at in range(0, len(found), 64)
    )


def test_a_page_that_cannot_be_read_is_a_fault_of_the_moment(
    postgres: Postgres, tmp_path: Path
) -> None:
    """Errors of the driver become the errors that the rest of the database raises."""
    url = PostgresBackend(postgres).migrated_url(tmp_path)
    database = Database(url, timeout=0.1)
    written = Written(database)
    written.put("a")
    with (
        locked(postgres, url),
        pytest.raises(Unavailable, match="lock"),
        database.reading() as session,
    ):
        list(changed_since(session, written.id, 0))
    with database.reading() as session:
        assert 1 == session.execute(text("SELECT count(*) FROM models")).scalar_one()
        assert 1 == len(list(changed_since(session, written.id, 0)))
    database.close()
