"""Patches: apply changes to a stored support, which gives the support that replaces it.

This module writes nothing: the result is put like any other support, on the condition that the
model has not changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from app.infra.db.database import Reader
from app.infra.errors import PreconditionFailed, SupportMissing
from app.infra.preconditions import Precondition
from app.models.catalog.puts import require_met
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.spaces.records import SpaceRecord
from modelkin.core.patch import Patch
from modelkin.core.support import Support
from modelkin.errors import DeltaMismatch, SpaceMismatch

__all__ = ["PatchService"]


class PatchService:
    """The use case of sending only the changes of a support.

    Args:
        reader: reads the supports that are changed.
    """

    def __init__(self, reader: ModelReader) -> None:
        self._reader = reader

    def subject(
        self, session: Reader, space: SpaceRecord, name: str, precondition: Precondition
    ) -> ModelRecord:
        """Return the model to change.

        Raises:
            SpaceMismatch: the space is ordered.
            ModelNotFound: there is no model of this name.
            PreconditionFailed: the model does not meet ``precondition``.
            SupportMissing: the model has only a signature.
        """
        if space.ordered:
            raise SpaceMismatch(
                f"space {space.name!r} holds ordered supports, and where a few indices change, so "
                f"do the octaves of others: PUT the support whole"
            )
        model = models.get_model(session, space, name)
        require_met(precondition, name, model)
        if model.kind == "signature":
            raise SupportMissing(
                f"model {name!r} sent only a signature, so there is no support to change: "
                f"send one whole"
            )
        return model

    def apply(
        self, space: SpaceRecord, model: ModelRecord, read: Callable[[Support], Patch]
    ) -> Support:
        """Return the new support of the model.

        Args:
            model: the result of :meth:`subject`.
            read: a function that decodes the patch for the support that it changes.

        Raises:
            PreconditionFailed: the model has changed since, or the patch changes another support.
            InvalidInput: the patch cannot be read or applied.
            ModelNotFound, Unavailable: the support cannot be read; see ``ModelReader.support``.
        """
        before = self._reader.support(space, model)
        if before.digest != model.digest:
            raise PreconditionFailed(f"model {model.name!r} was replaced just now: read it again")
        try:
            return read(before).apply(before)
        except DeltaMismatch as error:
            raise PreconditionFailed(str(error)) from None
