"""A SQLite database, copied while it is in use, and put back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from app.infra.errors import Unavailable
from app.operations.copies.manifests import (
    FEEDS,
    FORGET_BUCKETS,
    FORGET_INDEXES,
    SUPPORT_KEYS,
    Table,
    copy_file,
)

__all__ = ["DATABASE", "SqliteCopy", "restore_sqlite"]

DATABASE: Final = "database.db"


class SqliteCopy:
    """A copy of the database at one moment; writers go on meanwhile.

    Raises:
        Unavailable: the database cannot be copied.
    """

    kind: Final = "sqlite"
    tables: Final[list[Table]] = []

    def __init__(self, database_file: Path, folder: Path) -> None:
        self._copy = folder / DATABASE
        try:
            with (
                closing(sqlite3.connect(f"{database_file.as_uri()}?mode=rw", uri=True)) as read,
                closing(sqlite3.connect(self._copy)) as written,
            ):
                # All pages in one step, so in one view: a step between others begins again where
                # another process wrote meanwhile.
                read.backup(written, pages=-1)
                written.execute("PRAGMA journal_mode=DELETE").fetchone()  # one file, no log
        except sqlite3.Error as error:
            raise Unavailable(f"the database {database_file} cannot be copied: {error}") from error

    @property
    def files(self) -> list[Path]:
        """The files of the copy."""
        return [self._copy]

    def blob_keys(self) -> Iterator[str]:
        """The keys of all supports that the copy names, ascending.

        Raises:
            Unavailable: the copy cannot be read, as a database that is damaged.
        """
        try:
            with closing(sqlite3.connect(f"{self._copy.as_uri()}?mode=ro", uri=True)) as copy:
                for (key,) in copy.execute(f"{SUPPORT_KEYS} ORDER BY 1"):
                    yield key
        except sqlite3.Error as error:
            raise Unavailable(
                f"the copy {self._copy} of the database cannot be read: {error}"
            ) from error


def restore_sqlite(backup: Path, target: Path) -> None:
    """Put the copy in the place of the database, if none is there, in one step.

    Raises:
        Unavailable: the copy is not a database of a service.
    """
    copy = target.with_name(f"{target.name}.restored")
    copy_file(backup / DATABASE, copy)
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute(FORGET_BUCKETS)
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [FEEDS]).fetchone():
                connection.execute(FORGET_INDEXES)
    except sqlite3.Error as error:
        raise Unavailable(f"the backup is damaged: {backup / DATABASE}: {error}") from error
    copy.replace(target)
