"""The base of a model: the one that it declares on its hub, or the one that its source names.

This module has the rules. It asks the hub for a revision, and downloads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.hubs.clients.protocol import Hub, HubRevision
from app.hubs.ingestion.checkpoint_fetcher import revision_label
from app.hubs.ingestion.checkpoint_files import choose
from app.hubs.records import ImportanceName
from app.infra.errors import HubForbidden, HubNotFound, HubProtocolError
from modelkin.checkpoints import Checkpoint
from modelkin.core.matching.correspondence import correspond
from modelkin.errors import (
    InvalidCheckpoint,
    InvalidParameter,
    ModelkinError,
    PayloadTooLarge,
    SpaceMismatch,
)

__all__ = ["LACKING", "Base", "base_of", "require_same"]

LACKING: Final = (HubNotFound, HubForbidden, HubProtocolError, InvalidCheckpoint, PayloadTooLarge)
"""The errors after which a base is permanently not available."""

_NOT_ASKED: Final = "the source stores weights alone"
_UNKNOWN: Final = "the model declares no base, and its source names none"


@dataclass(frozen=True, slots=True)
class Base:
    """The base of a model, as far as the model or its source names one.

    Attributes:
        revision: the base's revision on the hub; None without a base to compare with.
        required: whether the source requires ``delta``, so that the sync fails without a base.
        reason: the reason why there is no base to compare with, or why the base does not fit.
        lacking: the name of a base that is declared and not available now.
        name: the name of an adapter's base, known once its configuration is read.
    """

    revision: HubRevision | None
    required: bool
    reason: str | None = None
    lacking: str | None = None
    name: str | None = None

    def without(self, error: ModelkinError, name: str, of: HubRevision) -> Base:
        """Return this base without a revision, unless a revision is required.

        Args:
            error: the reason why there is no base, one of :data:`LACKING`; raised if a base is
                required.
            name: the name of the base; ``of`` is the model.
        """
        if self.required:
            raise type(error)(f"the base of {revision_label(of)}: {error}") from None
        shown = name if self.revision is None else revision_label(self.revision)
        reason = f"base {shown} is not available ({error})"
        return Base(None, required=False, reason=reason, lacking=name)


def base_of(
    hub: Hub, revision: HubRevision, importance: ImportanceName | None, configured: str | None
) -> Base:
    """Return the base that a model declares, else the base that its source names.

    Args:
        importance: the importance of the source; None takes ``delta``, too, if there is a base.
        configured: the base of the source: ``name`` for its newest revision, or ``name@revision``.

    Raises:
        InvalidParameter: ``delta`` is required, but neither the model nor its source names a base.
        HubNotFound, HubForbidden, HubProtocolError, InvalidCheckpoint: ``delta`` is required, but
            the hub does not provide the base.
    """
    if importance == "weight":
        return Base(None, required=False, reason=_NOT_ASKED)
    required = importance == "delta"
    name, _, pinned = (revision.base_model or configured or "").rpartition("@")
    name, pinned = (name, pinned) if name else (pinned, "")
    if not name or name == revision.name:
        if required:
            raise InvalidParameter(
                f"{revision_label(revision)} declares no base model and its source names none, so "
                f"there is nothing to take a delta against: set the source's base_model, "
                f"or its importance to weight",
                field="base_model",
            )
        return Base(None, required=False, reason=_UNKNOWN)
    try:
        base = hub.look_up(name, pinned or None)
        choose(base.files, revision_label(base))
    except LACKING as error:
        return Base(None, required).without(error, name, revision)
    return Base(base, required)


def require_same(checkpoint: Checkpoint, base: Checkpoint, revision: HubRevision) -> None:
    """Refuse a base whose tensors are not those of the model.

    Args:
        revision: the revision of the base, for the message.

    Raises:
        SpaceMismatch: the base has other tensors.
    """
    found = correspond(base.layout, checkpoint.layout)
    if not found.equal:
        differing = found.difference("the base", "the model")
        raise SpaceMismatch(f"its base {revision_label(revision)} has another layout: {differing}")
