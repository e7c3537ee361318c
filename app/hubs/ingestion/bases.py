"""The bases of a model: those that it declares on its hub, or the one that its source names.

This module has the rules. It asks the hub for revisions, and downloads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.hubs.clients.protocol import Hub, HubRevision
from app.hubs.ingestion.base_names import LACKING, BaseNames, NamedBase
from app.hubs.ingestion.files.checkpoint_fetcher import revision_label
from app.hubs.ingestion.files.checkpoint_files import choose
from app.hubs.service import OpenSource
from modelkin.checkpoints import Checkpoint
from modelkin.core.file_formats import UnreadFormat
from modelkin.core.matching.correspondence import correspond
from modelkin.errors import InvalidCheckpoint, InvalidParameter, ModelkinError, SpaceMismatch

__all__ = ["LACKING", "Base", "BaseFinder", "require_common_tensors"]

_NOT_ASKED: Final = "the source stores weights alone"
_UNKNOWN: Final = "the model declares no base, and its source names none"
_ITSELF: Final = "the model declares itself as its base"
_THE_BASE: Final = "the model is the base that its source names"


@dataclass(frozen=True, slots=True)
class Base:
    """The base of a model, as far as the model or its source names one.

    Attributes:
        revision: the base's revision on the hub; None without a base to compare with.
        required: whether the source requires ``delta``, so that the sync fails without a base.
        reason: the reason why there is no base to compare with, or why the base does not fit.
        lacking: the name of a base that is declared and not available now.
        named: all bases that the model declares, or the one that stands in for them; each once.
    """

    revision: HubRevision | None
    required: bool
    reason: str | None = None
    lacking: str | None = None
    named: tuple[NamedBase, ...] = ()

    @property
    def name(self) -> str | None:
        """The name of the only base; None without one, and where there are several."""
        return self.named[0].name if len(self.named) == 1 else None

    def without(self, error: ModelkinError, name: str, of: HubRevision) -> Base:
        """Return this base without a revision, unless a revision is required.

        Args:
            error: the reason why there is no base, one of :data:`LACKING`; raised if a base is
                required.
            name: the name of the base; ``of`` is the model.
        """
        if self.required:
            # That the base has no file that is read says nothing of the model's own files.
            kind = InvalidCheckpoint if isinstance(error, UnreadFormat) else type(error)
            raise kind(f"the base of {revision_label(of)}: {error}") from None
        shown = name if self.revision is None else revision_label(self.revision)
        reason = f"base {shown} is not available ({error})"
        return replace(self, revision=None, reason=reason, lacking=name)


@dataclass(frozen=True, slots=True)
class BaseFinder:
    """Finds the bases of a source's models.

    Attributes:
        names: asks the hub.
        hub: the hub of the source.
        known: the names of bases on the hub, by the names that the model's publisher wrote, as an
            earlier sync found them.
    """

    names: BaseNames
    hub: Hub
    source: OpenSource
    known: Mapping[str, str]

    def base_of(
        self,
        revision: HubRevision,
        *,
        texts: Sequence[str] | None = None,
        optional: bool = False,
    ) -> Base:
        """Return the base that a model declares, else the base that its source names.

        Args:
            texts: the declared bases as they are written; None for those of the revision.
            optional: whether the model has a difference without its base, as adapters have.

        Raises:
            InvalidParameter: ``delta`` is required, but neither the model nor its source names a
                base, or the model declares several.
            HubNotFound, HubForbidden, HubProtocolError, InvalidCheckpoint: ``delta`` is required,
                but the hub does not provide the base.
        """
        hub, source, known = self.hub, self.source, self.known
        declared = revision.base_models if texts is None else texts
        if source.importance == "weight" or len(declared) > 1:
            found = self.names.names(hub, source.id, declared, known)
        else:
            own = (source.base_model,) if texts is None and source.base_model else ()
            asked = declared or own
            found = [self.names.revision(hub, text, known) for text in asked]
        named: dict[str, NamedBase] = {}
        for each in found:
            named.setdefault(each.name, each)
        base = Base(None, source.importance == "delta" and not optional, named=(*named.values(),))
        if source.importance == "weight":
            return replace(base, reason=_NOT_ASKED)
        return self._with_revision(base, revision)

    def _with_revision(self, base: Base, of: HubRevision) -> Base:
        """Add the revision of the only base, or the reason why there is none."""
        if len(base.named) > 1:
            names = ", ".join(each.name for each in base.named)
            reason = f"the model declares {len(base.named)} bases ({names})"
            return _without_any(base, of, reason, "leave it out by the source's filters")
        if base.name is None or base.name == of.name:
            reason, remedy = _UNKNOWN, "set the source's base_model"
            if base.name is not None:
                reason = _ITSELF if of.base_models else _THE_BASE
                remedy = "leave it out by the source's filters"
            base = base if of.base_models else replace(base, named=())
            return _without_any(base, of, reason, remedy)
        [only] = base.named
        if only.revision is None and only.error is None:  # its name alone was asked for
            only = self.names.revision(self.hub, only.written, self.known)
        try:
            if only.revision is None:
                assert only.error is not None
                raise only.error
            choose(only.revision.files, revision_label(only.revision))
        except LACKING as error:
            return base.without(error, only.name, of)
        return replace(base, revision=only.revision, named=(only,))


def _without_any(base: Base, of: HubRevision, reason: str, remedy: str) -> Base:
    """A base that no difference can be taken from; refused if a difference is required."""
    if base.required:
        raise InvalidParameter(
            f"{revision_label(of)}: {reason}, so there is nothing to take a delta against: "
            f"{remedy}, or set its importance to weight",
            field="base_model",
        )
    return replace(base, reason=reason)


def require_common_tensors(checkpoint: Checkpoint, base: Checkpoint, revision: HubRevision) -> None:
    """Refuse a base that has too little in common with the model.

    Args:
        revision: the revision of the base, for the message.

    Raises:
        SpaceMismatch: it has; names the tensors that differ.
    """
    found = correspond(base.layout, checkpoint.layout)
    if not found.fits:
        differing = found.difference("the base", "the model")
        raise SpaceMismatch(f"its base {revision_label(revision)} has another layout: {differing}")
