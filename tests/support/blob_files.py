"""The files of supports in a blob folder, and what the database says of them."""

from __future__ import annotations

import os
import re
import time
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select

from app.infra.db.database import Database
from app.infra.db.tables.blobs import OrphanBlobRow, ReleasedBlobRow
from app.infra.db.tables.catalog import ModelRow, RevisionRow
from app.infra.db.tables.tenants import InstallationRow

__all__ = ["age_files", "blob_files", "blob_keys", "named_keys", "pass_time", "released_keys"]

_NAME = re.compile(r"[0-9a-f]{32}(\.part)?")


def blob_files(folder: Path) -> set[Path]:
    """The files of all supports, unfinished ones included."""
    found = set()
    for parent, _, names in os.walk(folder):  # passes over what a service deletes meanwhile
        found |= {Path(parent, name) for name in names if _NAME.fullmatch(name)}
    return found


def blob_keys(folder: Path) -> set[str]:
    """The keys of the same."""
    return {path.relative_to(folder).as_posix() for path in blob_files(folder)}


def named_keys(database: Database) -> set[str]:
    """Where the rows say that supports are."""
    with database.reading() as session:
        keys = {*session.scalars(select(ModelRow.blob_key))}
        keys |= {*session.scalars(select(RevisionRow.blob_key))}
    return {key for key in keys if key is not None}


def released_keys(database: Database) -> set[str]:
    """The released blobs; a key that ends with a slash stands for those of a space."""
    with database.reading() as session:
        return {*session.scalars(select(ReleasedBlobRow.key))}


def pass_time(database: Database, passed: timedelta) -> None:
    """Move all that the clean-up of the blobs has noted into the past."""
    with database.writing() as session:
        for column in (
            ReleasedBlobRow.released_at,
            OrphanBlobRow.found_at,
            InstallationRow.swept_at,
        ):
            table = column.class_
            for row in session.scalars(select(table)):
                moment = getattr(row, column.key)
                if moment is not None:
                    setattr(row, column.key, moment - passed)


def age_files(folder: Path, seconds: float) -> None:
    """Make all files so old."""
    moment = time.time() - seconds
    for path in blob_files(folder):
        os.utime(path, (moment, moment))
