"""The table of kinds of hub, compared with the copies of its names that cannot be derived."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import get_args

import pytest
from sqlalchemy import CheckConstraint, String, inspect

from app.hubs.kinds import HUB_KINDS, HubKind
from app.infra.db.database import Database
from app.infra.db.tables.hubs import SourceRow
from modelkin.cli.service import sources
from modelkin.types.vocabulary import KnownHubKind
from tests.support.backends import SQLITE

PAGE = Path(__file__).parents[3] / "docs/hubs.md"
CONSTRAINT = "ck_sources_kind"


def test_the_sdk_types_the_same_kinds() -> None:
    """``KnownHubKind`` in ``modelkin.types.vocabulary``; the command line offers these kinds."""
    assert get_args(KnownHubKind) == tuple(HUB_KINDS)
    parser = argparse.ArgumentParser()
    sources.add_options(parser)
    assert f"{{{','.join(HUB_KINDS)}}}" in parser.format_help()


def test_the_database_stores_the_same_kinds(tmp_path: Path) -> None:
    """The table names a new kind in the constraint ``kind``, and a migration loosens it."""
    database = Database(SQLITE.migrated_url(tmp_path), timeout=5)
    with database.reading() as session:
        checks = inspect(session.connection()).get_check_constraints("sources")
    database.close()
    migrated = {str(check["sqltext"]) for check in checks if check["name"] == CONSTRAINT}
    declared = {
        str(constraint.sqltext)
        for constraint in SourceRow.metadata.tables["sources"].constraints
        if isinstance(constraint, CheckConstraint) and constraint.name == CONSTRAINT
    }
    assert declared == migrated
    [allowed] = declared
    assert set(re.findall(r"'(\w+)'", allowed)) == set(HUB_KINDS)


@pytest.mark.parametrize("kind", HUB_KINDS.values(), ids=HUB_KINDS)
def test_an_entry_fits_its_column_and_stands_in_the_documentation(kind: HubKind) -> None:
    """``docs/hubs.md`` names the kind as pages show it, and as requests send it."""
    column = SourceRow.metadata.tables["sources"].c.kind.type
    assert isinstance(column, String)
    assert column.length is not None
    assert len(kind.name) <= column.length
    page = PAGE.read_text()
    assert kind.label in page
    assert f'"{kind.name}"' in page
