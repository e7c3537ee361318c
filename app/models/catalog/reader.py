"""The model reader: models, signatures, and supports in the form that overlaps fast.

A support may be replaced between the reads of its row and its blob. Then a reader gets the newer
support, or None if the model was deleted, but never a mixture.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Database, Reader
from app.infra.errors import ModelNotFound, SupportMissing, Unavailable
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.models.catalog.puts import require_fitting_subspace, require_same_space
from app.models.catalog.records import EVERY_MODEL, ModelFilter, ModelOrder, ModelRecord
from app.models.catalog.repositories import models
from app.models.catalog.repositories.candidates import Candidate
from app.models.catalog.repositories.sketches import sketches_by_id
from app.models.catalog.stored_supports import SupportDecoder
from app.models.catalog.support_cache import SupportCache
from app.models.spaces.origins import NOTHING_STATED, StatedOrigin, require_same_origin
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import layouts
from modelkin import wire
from modelkin.core.layout import counts_in_tensors
from modelkin.core.packed import PackedSupport
from modelkin.core.sketching.schemes import value_dtype
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport, SpaceMismatch
from modelkin.types.paging import Page

__all__ = ["ModelReader", "Subject"]

_MAX_ATTEMPTS = 5
_NO_VALUES: npt.NDArray[np.unsignedinteger] = np.empty(0, np.uint32)

Known: TypeAlias = ModelRecord | Candidate
"""A model with the data to find its support."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a query: a stored model, or a support or signature that is not stored.

    Attributes:
        model: the stored model, or None.
        values: its signature's values, shape ``(num_perm,)``.
        packed: its support, or None if it has only a signature.
        sketch: the sketch sent beside a signature, if any.
        tensor_counts: the number of indices in each tensor for a support that is not stored, shape
            ``(tensors,)``; None without a layout, and for a stored model.
        subspace: the data subspace, in a space of these; there ``values`` is empty.
    """

    model: ModelRecord | None
    values: npt.NDArray[np.unsignedinteger]
    packed: PackedSupport | None
    sketch: Sketch | None = None
    tensor_counts: npt.NDArray[np.int64] | None = None
    subspace: Subspace | None = None


class ModelReader:
    """The use cases that read models.

    Args:
        database: the database, which is the truth.
        blobs: the store of supports.
        opened: the supports that stay open; none by default.
    """

    def __init__(
        self, database: Database, blobs: BlobStore, opened: SupportCache | None = None
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._opened = SupportCache(0, 0) if opened is None else opened

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
        wanted: ModelFilter = EVERY_MODEL,
        order: ModelOrder = "name",
    ) -> Page[ModelRecord]:
        """The models that meet the filter, in this order."""
        return models.list_models(
            session, space, limit=limit, cursor=cursor, wanted=wanted, order=order
        )

    def find(
        self, session: Reader, space: SpaceRecord, names: Iterable[str]
    ) -> dict[str, ModelRecord]:
        """The existing models among ``names``, by name."""
        return models.find_models(session, space, names)

    def fetch(self, models: Iterable[Known], within: float) -> set[str]:
        """Bring the supports of models to this machine, side by side, before they are opened.

        Args:
            models: any models, also without a support.
            within: seconds that this may take.

        Returns:
            The blob keys of the supports that did not come in time.
        """
        keys = [model.blob_key for model in models if model.blob_key is not None]
        return self._blobs.fetch([key for key in keys if self._opened.get(key) is None], within)

    def heads(self, models: Iterable[Known], within: float) -> dict[str, bytes]:
        """Read the heads of models' supports, side by side: the bytes before them in their store.

        Args:
            models: any models, also without a support.
            within: seconds that this may take.

        Returns:
            The heads that came in time, by blob key; empty where a store has none.
        """
        keys = [model.blob_key for model in models if model.blob_key is not None]
        return self._blobs.heads(keys, within)

    def find_packed(
        self, space: SpaceRecord, model: Known, *, mapped: bool = False
    ) -> PackedSupport | None:
        """The model's support; None if it has only a signature, or was deleted."""
        found = self.find_support(space, model, mapped=mapped)
        return None if found is None else found[1]

    def find_support(
        self, space: SpaceRecord, model: Known, *, mapped: bool = False
    ) -> tuple[Known, PackedSupport] | None:
        """The model's support, and its model: the newer one if it was replaced.

        Args:
            space: the space of the model.
            model: the model.
            mapped: whether the support is one of many that are compared within
                :func:`app.infra.storage.guarded_maps.intact_maps`: it takes no memory, and is
                closed afterwards.

        Returns:
            None if it has only a signature, or was deleted.

        Raises:
            Unavailable: the file is damaged, or cannot be read now.
        """
        for _ in range(_MAX_ATTEMPTS):
            if model.blob_key is None:
                return None
            packed = self._opened.get(model.blob_key)
            if packed is not None:
                return model, packed
            try:
                return model, self._open(space, model, model.blob_key, mapped=mapped)
            except KeyError:
                current = self._current(space, model)
                if current is None:
                    return None
                if current.blob_key == model.blob_key:
                    raise _damage_error(model, "missing from the store of supports") from None
                model = current
        raise Unavailable(f"model {model.name!r} is being replaced faster than it can be read")

    def _open(
        self, space: SpaceRecord, model: Known, blob_key: str, *, mapped: bool
    ) -> PackedSupport:
        decode = SupportDecoder(space, model.support_size, model.digest)
        try:
            packed = self._blobs.open_verified(blob_key, decode, mapped=mapped)
        except DamagedBlob as error:
            raise _damage_error(model) from error
        if not mapped:
            self._opened.put(blob_key, packed)
        return packed

    def _current(self, space: SpaceRecord, model: Known) -> ModelRecord | None:
        """The present model, which may be newer than the caller's snapshot."""
        with self._database.reading() as session:
            return models.find_model(session, space, model.name)

    def require_packed(
        self, space: SpaceRecord, model: ModelRecord, *, mapped: bool = False
    ) -> PackedSupport:
        """Return the model's support; ``mapped`` is as for :meth:`find_support`.

        Raises:
            SupportMissing: the model has only a signature.
            ModelNotFound: the model was deleted meanwhile.
        """
        packed = self.find_packed(space, model, mapped=mapped)
        if packed is not None:
            return packed
        if model.kind == "signature":
            raise SupportMissing(
                f"model {model.name!r} sent only a signature, and this needs its support: "
                f"ask for neighbors, donors or similarity, which answer estimates"
            )
        raise ModelNotFound(f"there is no model {model.name!r} in space {space.name!r}")

    def support(self, space: SpaceRecord, model: ModelRecord) -> Support:
        """Return the model's support, whole and verified by its digest.

        Raises:
            SupportMissing, ModelNotFound: see :meth:`require_packed`.
            Unavailable: the file is damaged; a wrong support is never returned.
        """
        try:
            support = self.require_packed(space, model).unpack()
        except InvalidSupport as error:
            raise _damage_error(model) from error
        if support.digest != model.digest:
            current = self._current(space, model)
            if current is None or current.digest != support.digest:
                raise _damage_error(model)
        return support

    def values(
        self, session: Reader, space: SpaceRecord, ids: Iterable[int]
    ) -> dict[int, npt.NDArray[np.unsignedinteger]]:
        """The signatures' values, ``(num_perm,)`` each, under the ids of models that exist."""
        dtype = value_dtype(space.signature.scheme).newbyteorder("<")
        found = models.signatures_by_id(session, ids)
        return {model_id: np.frombuffer(values, dtype) for model_id, values in found.items()}

    def signature(self, session: Reader, space: SpaceRecord, model: ModelRecord) -> Signature:
        """Return the signature that the model sent, or that was computed here from its support."""
        return Signature.from_values(
            self.values(session, space, [model.id])[model.id],
            num_parameters=space.num_parameters,
            support_size=model.support_size,
            scheme=space.signature.scheme,
            seed=space.signature.seed,
        )

    def sent_sketch(self, session: Reader, model: ModelRecord) -> Sketch | None:
        """The sketch that a model sent beside its signature; None without one."""
        if model.kind == "support" or not model.content_id:
            return None
        sent = sketches_by_id(session, [model.id])
        return wire.decode_sketch(sent[model.id]) if sent else None

    def stored_subject(self, session: Reader, space: SpaceRecord, name: str) -> Subject:
        """A stored model as a subject; :class:`ModelNotFound` if there is none."""
        model = models.get_model(session, space, name)
        if space.subspaces is not None:
            subspace = Subspace.from_bytes(models.signature_of(session, model.id))
            return Subject(model, _NO_VALUES, None, subspace=subspace)
        dtype = value_dtype(space.signature.scheme).newbyteorder("<")
        values: npt.NDArray[np.unsignedinteger] = np.frombuffer(
            models.signature_of(session, model.id), dtype
        )
        sketch = self.sent_sketch(session, model)
        return Subject(model, values, self.find_packed(space, model), sketch)

    def given_subject(
        self,
        session: Reader,
        space: SpaceRecord,
        thing: Support | Signature | Subspace,
        origin: StatedOrigin = NOTHING_STATED,
    ) -> Subject:
        """Make a subject of a payload; :class:`SpaceMismatch` if it is of another space."""
        if isinstance(thing, Subspace):
            require_fitting_subspace(space, thing)
            return Subject(None, _NO_VALUES, None, subspace=thing)
        require_same_origin(space, origin)
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
        sizes = layouts.tensor_sizes(session, space)
        counts = None if sizes is None else counts_in_tensors(thing.indices, sizes)
        return Subject(None, signature.values, PackedSupport.pack(thing), tensor_counts=counts)


def _damage_error(model: Known, how: str = "damaged") -> Unavailable:
    return Unavailable(
        f"the stored support of {model.name!r} is {how}: restore its file, or send it again"
    )
