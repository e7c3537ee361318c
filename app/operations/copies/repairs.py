"""Repairs: compute data again from intact supports and rows."""

from __future__ import annotations

from sqlalchemy import delete, insert, update

from app.infra.db.database import Database, Writer
from app.infra.db.tables.catalog import ModelRow, RevisionRow, SignatureRow, SpaceRow
from app.infra.errors import SpaceNotFound, Unavailable
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.models.catalog.repositories import model_writes, models, tensor_counts
from app.models.catalog.stored_supports import SupportDecoder
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.operations.copies import repository
from app.operations.copies.derivation import derive, space_state
from app.operations.copies.records import StoredModel
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport

__all__ = ["Repairs"]


class Repairs:
    """Recomputes counts, and the data that are stored beside supports.

    Args:
        blobs: the store of supports.
    """

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database = database
        self._blobs = blobs

    def derive_again(self, damaged: StoredModel) -> None:
        """Store the signature and counts of a model again, from its support.

        The model gets a new version, so that indexes and buckets follow.

        Raises:
            SpaceNotFound: the space was deleted.
            Unavailable: the support cannot be read, or is damaged.
        """
        with self._database.writing() as session:
            known = spaces.find_space_by_id(session, damaged.space_id)
            if known is None:
                raise SpaceNotFound(f"space {damaged.space_id} was deleted")
            space = spaces.lock_space(session, known)
            model = models.models_by_id(session, [damaged.id]).get(damaged.id)
            if model is None or model.blob_key is None:
                return  # deleted meanwhile, or replaced by a signature
            state = space_state(session, space)
            support = self._support(space, model.blob_key, model.support_size, model.digest)
            made = derive(state, support)
            session.execute(delete(SignatureRow).where(SignatureRow.model_id == model.id))
            session.execute(insert(SignatureRow).values(model_id=model.id, values=made.signature))
            tensor_counts.replace_counts(session, {model.id: made.tensor_counts})
            version = spaces.advance(session, space)
            model_writes.update_metadata(session, model, version=version)

    def note_size(self, space: SpaceRecord, blob_key: str, size: int) -> None:
        """Note the bytes of a blob in the rows that name it, and count those of its space again.

        Raises:
            SpaceNotFound: the space was deleted.
        """
        with self._database.writing() as session:
            spaces.lock_space(session, space)
            for table in (ModelRow, RevisionRow):
                noted = update(table).where(table.blob_key == blob_key).values(blob_size=size)
                session.execute(noted.execution_options(synchronize_session=False))
            _count(session, space)

    def count_again(self, space: SpaceRecord) -> None:
        """Count the models of a space, and the bytes of their supports, again.

        Raises:
            SpaceNotFound: the space was deleted.
        """
        with self._database.writing() as session:
            spaces.lock_space(session, space)
            _count(session, space)

    def _support(
        self, space: SpaceRecord, blob_key: str, support_size: int, digest: str | None
    ) -> Support:
        try:
            decode = SupportDecoder(space, support_size, digest)
            return self._blobs.open_verified(blob_key, decode).unpack()
        except (KeyError, DamagedBlob, InvalidSupport) as error:
            raise Unavailable(f"the file {blob_key} is missing or damaged") from error


def _count(session: Writer, space: SpaceRecord) -> None:
    """Set the counts of a locked space."""
    counts = repository.space_counts(session, space.id)
    assert counts is not None, "the space is locked"
    session.execute(
        update(SpaceRow)
        .where(SpaceRow.id == space.id)
        .values(
            supports=counts[1].supports,
            signatures=counts[1].signatures,
            support_bytes=counts[1].support_bytes,
        )
        .execution_options(synchronize_session=False)
    )
