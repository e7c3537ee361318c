"""Reading what is kept: models, signatures, and supports in the form that overlaps fast.

A support may be replaced between the row and its blob; what a reader then sees is the newer one or,
if the model is gone, nothing. It is never a mixture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.services.rules import require_same_space
from app.stores.ports import BlobStore, ModelRecord, SpaceRecord
from app.stores.sql import models
from app.stores.sql.database import Database, Reader
from modelkin.core.packed import PackedSupport
from modelkin.core.signature import Signature, value_dtype
from modelkin.core.support import Support
from modelkin.errors import (
    InvalidSupport,
    ModelNotFound,
    SpaceMismatch,
    SupportMissing,
    Unavailable,
)
from modelkin.types import Page

__all__ = ["Library", "Subject"]

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose neighbours are sought: a stored model, or a support or signature that is not stored.

    Attributes:
        model: the stored model, or None.
        values: its signature's values, shape ``(num_perm,)``.
        packed: its support, or None if it has only a signature.
    """

    model: ModelRecord | None
    values: npt.NDArray[np.unsignedinteger]
    packed: PackedSupport | None


class Library:
    """The use cases that read models."""

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database = database
        self._blobs = blobs

    def model(self, session: Reader, space: SpaceRecord, name: str) -> ModelRecord:
        """The model of this name, or :class:`ModelNotFound`."""
        return models.get_model(session, space, name)

    def models(
        self,
        session: Reader,
        space: SpaceRecord,
        *,
        limit: int,
        cursor: str | None,
        tags: Sequence[str],
    ) -> Page[ModelRecord]:
        """The models by name; with ``tags`` those that carry all of them."""
        return models.list_models(session, space, limit=limit, cursor=cursor, tags=tags)

    def packed(self, space: SpaceRecord, model: ModelRecord) -> PackedSupport | None:
        """The model's support, mapped; None if it has only a signature, or was deleted."""
        for _ in range(_ATTEMPTS):
            if model.blob_key is None:
                return None
            try:
                data = self._blobs.open(model.blob_key)
            except KeyError:
                current = self._current(space, model)
                if current is None:
                    return None
                if current.blob_key == model.blob_key:
                    raise _damaged(model, "missing from the blob folder") from None
                model = current
                continue
            try:
                return PackedSupport.from_buffer(data, space.num_parameters, model.support_size)
            except InvalidSupport as error:
                raise _damaged(model) from error
        raise Unavailable(f"model {model.name!r} is being replaced faster than it can be read")

    def _current(self, space: SpaceRecord, model: ModelRecord) -> ModelRecord | None:
        """The model as it is now: the caller's snapshot may have been overtaken."""
        with self._database.reading() as session:
            return models.find_model(session, space, model.name)

    def require_packed(self, space: SpaceRecord, model: ModelRecord) -> PackedSupport:
        """The model's support, mapped.

        Raises:
            SupportMissing: it sent only a signature.
            ModelNotFound: it was deleted meanwhile.
        """
        packed = self.packed(space, model)
        if packed is not None:
            return packed
        if model.kind == "signature":
            raise SupportMissing(
                f"model {model.name!r} sent only a signature, and this needs its support: "
                f"ask for neighbors, donors or similarity, which answer estimates"
            )
        raise ModelNotFound(f"there is no model {model.name!r} in space {space.name!r}")

    def support(self, space: SpaceRecord, model: ModelRecord) -> Support:
        """The model's support, whole and held against its digest.

        Raises:
            SupportMissing, ModelNotFound: as :meth:`require_packed`.
            Unavailable: the file is not what was stored; nothing wrong is ever answered.
        """
        try:
            support = self.require_packed(space, model).unpack()
        except InvalidSupport as error:
            raise _damaged(model) from error
        if support.digest != model.digest:
            current = self._current(space, model)
            if current is None or current.digest != support.digest:
                raise _damaged(model)
        return support

    def values(
        self, session: Reader, space: SpaceRecord, ids: Iterable[int]
    ) -> dict[int, npt.NDArray[np.unsignedinteger]]:
        """The signatures' values, ``(num_perm,)`` each, under the ids of models that exist."""
        dtype = value_dtype(space.signature.scheme).newbyteorder("<")
        found = models.signatures_by_id(session, ids)
        return {model_id: np.frombuffer(values, dtype) for model_id, values in found.items()}

    def signature(self, session: Reader, space: SpaceRecord, model: ModelRecord) -> Signature:
        """The signature the model sent, or the one that was computed here from its support."""
        return Signature.from_values(
            self.values(session, space, [model.id])[model.id],
            num_parameters=space.num_parameters,
            support_size=model.support_size,
            scheme=space.signature.scheme,
            seed=space.signature.seed,
        )

    def stored_subject(self, session: Reader, space: SpaceRecord, name: str) -> Subject:
        """A stored model, to be asked about; :class:`ModelNotFound` if there is none."""
        model = models.get_model(session, space, name)
        values = self.values(session, space, [model.id])[model.id]
        return Subject(model, values, self.packed(space, model))

    def given_subject(self, space: SpaceRecord, thing: Support | Signature) -> Subject:
        """What is not stored, to be asked about; :class:`SpaceMismatch` if of another space."""
        if isinstance(thing, Signature):
            require_same_space(space, thing)
            return Subject(None, thing.values, None)
        if thing.num_parameters != space.num_parameters:
            raise SpaceMismatch(
                f"the support is of {thing.num_parameters} parameters, "
                f"space {space.name!r} of {space.num_parameters}"
            )
        spec = space.signature
        signature = thing.signature(spec.num_perm, spec.seed, spec.scheme)
        return Subject(None, signature.values, PackedSupport.pack(thing))


def _damaged(model: ModelRecord, how: str = "damaged") -> Unavailable:
    return Unavailable(
        f"the stored support of {model.name!r} is {how}: restore its file, or send it again"
    )
