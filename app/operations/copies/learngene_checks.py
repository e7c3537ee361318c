"""Checks of the files of learngenes that are kept: there, as long as their rows say, and whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.infra.db.database import Database
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.models.learngenes import repository as learngenes
from app.models.learngenes.records import LearngeneRecord, shown_cluster
from app.models.spaces.repositories import spaces
from app.operations.copies.records import Finding
from modelkin.core.learngenes.manifest import digest_of
from modelkin.errors import ModelkinError

__all__ = ["LearngeneChecks"]

_PAGE_SIZE: Final = 100


class LearngeneChecks:
    """Checks kept files, one at a time.

    Args:
        database: the database that names the files.
        blobs: the store of the files.
        deep: whether to read the files and compare their digests.
    """

    def __init__(self, database: Database, blobs: BlobStore, *, deep: bool) -> None:
        self._database = database
        self._blobs = blobs
        self._deep = deep

    def findings(self) -> Iterator[Finding]:
        """Yield all findings of these checks."""
        last = ""
        while True:
            with self._database.reading() as session:
                page = learngenes.kept_after(session, last, _PAGE_SIZE)
            if not page:
                return
            last = page[-1].id
            for learngene in page:
                wrong = self._wrong(learngene)
                if wrong is not None and self._is_named(learngene):
                    yield Finding(self._subject(learngene), f"{wrong}: {_REMEDY}")

    def _wrong(self, learngene: LearngeneRecord) -> str | None:
        """Say how a file is wrong; None if it is not."""
        key = str(learngene.blob_key)
        try:
            size = self._blobs.size(key)
        except DamagedBlob:
            return f"its file {key} is damaged"
        if size is None:
            return f"its file {key} is missing"
        if size != learngene.size:
            return f"its file {key} has {size} bytes, not {learngene.size}"
        if not self._deep:
            return None
        try:
            found = digest_of(self._blobs.read(key))
        except (KeyError, ModelkinError):
            return f"its file {key} cannot be read"
        return None if found == learngene.digest else f"its file {key} is damaged"

    def _is_named(self, learngene: LearngeneRecord) -> bool:
        """Whether its row names the file still, which a change may have released meanwhile."""
        key = str(learngene.blob_key)
        with self._database.reading() as session:
            return key in learngenes.blob_keys(session, [key])

    def _subject(self, learngene: LearngeneRecord) -> str:
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, learngene.space_id)
        name = "of a deleted space" if space is None else f"space {space.name!r} ({space.id})"
        cluster = shown_cluster(learngene.cluster)
        return f"{name}, learngene of cluster {cluster}, version {learngene.version}"


_REMEDY: Final = "restore it from a backup, or delete the version and publish it again"
