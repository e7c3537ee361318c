"""Revisions: the past contents of a model, and its kept supports.

This module only reads; ``revision_recorder`` records them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.infra.db.database import Database, Reader
from app.infra.errors import RevisionNotFound, SupportMissing, Unavailable
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.models.catalog.records import ModelRecord, RevisionRecord
from app.models.catalog.repositories import models, revisions
from app.models.catalog.stored_supports import SupportDecoder
from app.models.spaces.records import SpaceRecord
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport
from modelkin.types.paging import Page

__all__ = ["RevisionList", "RevisionService"]

_MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class RevisionList:
    """A page of a model's revisions.

    Attributes:
        model: the present one.
        first: the number of the first known revision, with which all are compared.
        page: newest first.
    """

    model: ModelRecord
    first: int
    page: Page[RevisionRecord]


class RevisionService:
    """The use cases that read revisions.

    Args:
        database: the database, read again if a support was deleted while it was being read.
        blobs: stores supports.
    """

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database = database
        self._blobs = blobs

    def list(
        self, session: Reader, space: SpaceRecord, name: str, *, limit: int, cursor: str | None
    ) -> RevisionList:
        """The revisions of a model; :class:`ModelNotFound` if there is no model of this name."""
        model = models.get_model(session, space, name)
        first = revisions.first_revision(session, model)
        page = revisions.list_revisions(session, model, limit=limit, cursor=cursor)
        return RevisionList(model, first, page)

    def revision(
        self, session: Reader, space: SpaceRecord, name: str, number: int
    ) -> RevisionRecord:
        """Return a revision whose support is kept; raises the errors of :meth:`support`."""
        return _find(session, space, name, number)

    def support(self, session: Reader, space: SpaceRecord, name: str, number: int) -> Support:
        """Return the support of a revision, verified by its digest.

        Raises:
            ModelNotFound: there is no model of this name.
            RevisionNotFound: there never was such a revision, or its support is not kept.
            SupportMissing: that revision has only a signature.
            Unavailable: the file is damaged.
        """
        revision = _find(session, space, name, number)
        session.rollback()  # no connection is held while the disk is busy
        for _ in range(_MAX_ATTEMPTS):
            try:
                return self._read(space, name, revision)
            except KeyError:
                with self._database.reading() as anew:
                    current = _find(anew, space, name, number)
                if current.blob_key == revision.blob_key:
                    raise _damage_error(
                        name, number, "missing from the store of supports"
                    ) from None
                revision = current
        raise Unavailable(f"revision {number} of {name!r} is being moved faster than it is read")

    def _read(self, space: SpaceRecord, name: str, revision: RevisionRecord) -> Support:
        assert revision.blob_key is not None
        decode = SupportDecoder(space, revision.support_size, revision.digest)
        try:
            return self._blobs.open_verified(revision.blob_key, decode).unpack()
        except (DamagedBlob, InvalidSupport) as error:
            raise _damage_error(name, revision.revision) from error


def _find(session: Reader, space: SpaceRecord, name: str, number: int) -> RevisionRecord:
    """The revision, which has a support that is kept."""
    model = models.get_model(session, space, name)
    revision = revisions.find_revision(session, model, number)
    if revision is not None and revision.kind == "signature":
        raise SupportMissing(f"revision {number} of model {name!r} sent only a signature")
    if revision is None or revision.blob_key is None:
        kept = revisions.kept_revisions(session, model)
        available = f"those of revisions {_ranges(kept)} are" if kept else "no support is"
        state = "never existed" if number > model.revision else "is not kept"
        raise RevisionNotFound(
            f"the support of revision {number} of model {name!r} {state}; {available} available"
        )
    return revision


def _ranges(numbers: Sequence[int]) -> str:
    """``1, 4 to 7`` for 1, 4, 5, 6, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)


def _damage_error(name: str, number: int, how: str = "damaged") -> Unavailable:
    return Unavailable(f"the stored support of revision {number} of {name!r} is {how}")
