"""Patches: a stored support and what changes in it, made into the support that is to replace it.

Nothing is written here: what comes out is put as any other support, on the condition that the model
is still the one that was patched.
"""

from __future__ import annotations

from collections.abc import Callable

from app.catalog.puts import Precondition, require_met
from app.catalog.reader import ModelReader
from app.catalog.records import ModelRecord
from app.catalog.repositories import models
from app.errors import PreconditionFailed, SupportMissing
from app.infra.db.database import Reader
from app.spaces.records import SpaceRecord
from modelkin.core.delta import Delta
from modelkin.core.support import Support
from modelkin.errors import DeltaMismatch

__all__ = ["DeltaService"]


class DeltaService:
    """The use case of sending only what changed.

    Args:
        library: has the supports that are patched.
    """

    def __init__(self, library: ModelReader) -> None:
        self._library = library

    def subject(
        self, session: Reader, space: SpaceRecord, name: str, precondition: Precondition
    ) -> ModelRecord:
        """The model that is to be patched.

        Raises:
            ModelNotFound: there is none of this name.
            PreconditionFailed: it is not as ``precondition`` expects.
            SupportMissing: it sent only a signature.
        """
        model = models.get_model(session, space, name)
        require_met(precondition, name, model)
        if model.kind == "signature":
            raise SupportMissing(
                f"model {name!r} sent only a signature, so there is no support to change: "
                f"send one whole"
            )
        return model

    def apply(
        self, space: SpaceRecord, model: ModelRecord, read: Callable[[Support], Delta]
    ) -> Support:
        """The support that the model's becomes.

        Args:
            space: where.
            model: of :meth:`subject`.
            read: makes the delta, once the support that it changes is known.

        Raises:
            PreconditionFailed: the model has changed since, or the delta changes another support.
            InvalidInput: the delta cannot be read, or not be applied.
            ModelNotFound, Unavailable: as ``ModelReader.support``.
        """
        before = self._library.support(space, model)
        if before.digest != model.digest:
            raise PreconditionFailed(f"model {model.name!r} was replaced just now: read it again")
        try:
            return read(before).apply(before)
        except DeltaMismatch as error:
            raise PreconditionFailed(str(error)) from None
