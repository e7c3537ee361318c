"""The contents of a backup: its manifest, written last, and the list of its supports.

A folder of backups::

    backups/20261122T180000Z/manifest.json    without it the backup is unfinished
                             supports.tsv     key, bytes and SHA-256 of each support, by key
                             database.db      SQLite; or tables/NAME.copy of Postgres
                             secret.key       where the service generated one
    supports/KEY                              shared by all of them
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from app.infra.errors import NotFound, Unavailable
from app.models.spaces.repositories.spaces import RETIRED

__all__ = [
    "BACKUPS",
    "FEEDS",
    "FORGET_BUCKETS",
    "FORGET_INDEXES",
    "MANIFEST",
    "SUPPORTS",
    "SUPPORT_KEYS",
    "SUPPORT_LIST",
    "FileSum",
    "Manifest",
    "Support",
    "Table",
    "check_file",
    "copy_file",
    "file_sum",
    "find_backup",
    "supports_of",
    "whole_backups",
    "write_file",
]

BACKUPS: Final = "backups"
SUPPORTS: Final = "supports"
SUPPORT_LIST: Final = "supports.tsv"
MANIFEST: Final = "manifest.json"
FORGET_BUCKETS: Final = "UPDATE spaces SET bucket_epoch = NULL"
"""Run after a restoration: Redis may still hold buckets of the database before it."""
FEEDS: Final = "fingerprint_feeds"
FORGET_INDEXES: Final = """
    UPDATE fingerprint_feeds
    SET version = version + 4294967296, compacted_version = version + 4294967296
"""
"""Run after a restoration that has this table: machines may still hold indexes of the database
before it. Those of a version that is compacted are built again, and none has come so far."""
SUPPORT_KEYS: Final = f"""
    WITH present AS (
        SELECT m.id, m.blob_key FROM models m JOIN spaces s ON s.id = m.space_id
        WHERE substr(s.name, 1, 1) <> '{RETIRED}'
    )
    SELECT blob_key FROM present WHERE blob_key IS NOT NULL UNION
    SELECT r.blob_key FROM revisions r JOIN present p ON p.id = r.model_id
    WHERE r.blob_key IS NOT NULL UNION
    SELECT l.blob_key FROM learngenes l JOIN spaces s ON s.id = l.space_id
    WHERE l.blob_key IS NOT NULL AND substr(s.name, 1, 1) <> '{RETIRED}'
"""  # noqa: S608 - of constants
"""The query for the keys of the supports of a copy; those of deleted spaces may be gone before
their rows.
"""
_CHUNK_BYTES = 1 << 20
_LINE = re.compile(r"((?:\w+/)+\w+)\t(\d+)\t([0-9a-f]{64})\n", re.ASCII)
"""No key leads out of the folder of supports."""


class FileSum(BaseModel):
    """The length and the SHA-256 of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    sha256: str


class Table(BaseModel):
    """A table of Postgres: its copied columns, and the counters of its ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    columns: list[str]
    counters: dict[str, int]


class Manifest(BaseModel):
    """The content of ``manifest.json``.

    Attributes:
        revision: the revision of the database's schema.
        token: the installation's token, a part of every support's key.
        files: all other files of the backup's folder, by their paths in it.
        tables: the tables of Postgres, parents first.
        missing: keys of supports that the database names and that were missing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    made_at: str
    database: Literal["sqlite", "postgresql"]
    revision: str
    token: str
    supports: int
    files: dict[str, FileSum]
    tables: list[Table] = []
    missing: list[str] = []


@dataclass(frozen=True, slots=True)
class Support:
    """A support of a backup: its key in the store of supports, and its sum."""

    key: str
    sum: FileSum


def file_sum(path: Path) -> FileSum:
    """The sum of a file's content."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FileSum(size=size, sha256=digest.hexdigest())


def check_file(path: Path, expected: FileSum) -> Path:
    """Check a file of the backup, and return its path.

    Raises:
        Unavailable: the file is missing, cut or changed, or the disk does not give it.
    """
    try:
        found = file_sum(path)
    except FileNotFoundError:
        raise Unavailable(f"the backup is damaged: {path} is missing") from None
    except OSError as error:
        raise Unavailable(f"the backup is damaged: {path} cannot be read: {error}") from error
    if found != expected:
        raise Unavailable(
            f"the backup is damaged: {path} has {found.size:,} bytes of SHA-256 {found.sha256}, "
            f"not {expected.size:,} of {expected.sha256}"
        )
    return path


def whole_backups(folder: Path) -> list[Path]:
    """The finished backups of a folder, oldest first."""
    return sorted(path.parent for path in (folder / BACKUPS).glob(f"*/{MANIFEST}"))


def find_backup(folder: Path, name: str | None) -> tuple[Path, Manifest]:
    """Find a backup in a folder, by default its newest.

    Raises:
        NotFound: no backup was finished, or none of this name.
        Unavailable: its manifest cannot be read.
    """
    whole = [path for path in whole_backups(folder) if name in {None, path.name}]
    if not whole:
        which = "backup" if name is None else f"backup {name}"
        raise NotFound(f"there is no finished {which} in {folder}")
    path = whole[-1]
    try:
        return path, Manifest.model_validate_json((path / MANIFEST).read_bytes())
    except (OSError, ValidationError) as error:
        reason = " ".join(str(error).split())  # of many lines
        raise Unavailable(f"the backup is damaged: {path / MANIFEST}: {reason}") from None


def supports_of(backup: Path, manifest: Manifest) -> Iterator[Support]:
    """The supports of a backup, by key; of a list that is as the manifest says.

    Raises:
        Unavailable: the list is missing, cut or changed, or the manifest does not name it.
    """
    expected = manifest.files.get(SUPPORT_LIST)
    if expected is None:
        raise Unavailable(
            f"the backup is damaged: {backup / MANIFEST} has no sum of {SUPPORT_LIST}"
        )
    return _read_supports(check_file(backup / SUPPORT_LIST, expected))


def _read_supports(path: Path) -> Iterator[Support]:
    with path.open(encoding="ascii") as lines:
        for line in lines:
            found = _LINE.fullmatch(line)
            if found is None:
                raise Unavailable(f"the backup is damaged: {path} has a line that names no support")
            yield Support(found[1], FileSum(size=int(found[2]), sha256=found[3]))


def write_file(data: memoryview, target: Path) -> FileSum:
    """Write a file, whole or not at all, as :func:`copy_file` does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.part")
    temporary.write_bytes(data)
    temporary.replace(target)
    return FileSum(size=data.nbytes, sha256=hashlib.sha256(data).hexdigest())


def copy_file(original: Path, target: Path) -> FileSum:
    """Copy a file, whole or not at all; return what was read.

    It survives a power loss only once the disk was synced.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.part")
    digest, size = hashlib.sha256(), 0
    with original.open("rb") as read, temporary.open("wb") as written:
        while chunk := read.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += written.write(chunk)
    temporary.replace(target)
    return FileSum(size=size, sha256=digest.hexdigest())
