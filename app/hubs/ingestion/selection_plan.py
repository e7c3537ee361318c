"""The plan for the supports of a model: their base, and their size.

This module has the rules. It downloads nothing, and selects from the checkpoints that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from app.hubs.clients.protocol import Hub, HubRevision
from app.hubs.ingestion.checkpoint_fetcher import Counter, named
from app.hubs.ingestion.checkpoint_files import choose
from app.hubs.records import Importance
from app.infra.db.database import Reader
from app.infra.errors import HubForbidden, HubNotFound, HubProtocolError
from app.models.spaces.records import SpaceRecord
from app.models.spaces.support_sizes import SupportSizeService
from modelkin.checkpoints import Checkpoint, select_from_checkpoint
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.selection.streaming import Floats
from modelkin.core.support import Support
from modelkin.errors import (
    InvalidCheckpoint,
    InvalidImportance,
    InvalidParameter,
    ModelkinError,
    PayloadTooLarge,
    SpaceMismatch,
)

__all__ = ["LACKING", "Base", "Sizes", "base_of", "require_same", "select"]

LACKING: Final = (HubNotFound, HubForbidden, HubProtocolError, InvalidCheckpoint, PayloadTooLarge)
"""The errors after which a base is permanently not available."""

_PASSES: Final = 3
"""The most times that a checkpoint is read."""
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
            raise type(error)(f"the base of {named(of)}: {error}") from None
        shown = name if self.revision is None else named(self.revision)
        reason = f"base {shown} is not available ({error})"
        return Base(None, required=False, reason=reason, lacking=name)


def base_of(
    hub: Hub, revision: HubRevision, importance: Importance | None, configured: str | None
) -> Base:
    """Return the base that a model declares, else the base that its source names.

    Args:
        hub: the hub of both.
        revision: the revision of the model.
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
                f"{named(revision)} declares no base model and its source names none, so there is "
                f"nothing to take a delta against: set the source's base_model, or its importance "
                f"to weight",
                field="base_model",
            )
        return Base(None, required=False, reason=_UNKNOWN)
    try:
        base = hub.look_up(name, pinned or None)
        choose(base.files, named(base))
    except LACKING as error:
        return Base(None, required).without(error, name, revision)
    return Base(base, required)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of supports.

    Attributes:
        service: the service with the support size of each space.
        most: the most indices of a support. It bounds memory, however large checkpoints are.
    """

    service: SupportSizeService
    most: int

    def rule(
        self,
        session: Reader,
        space: SpaceRecord | None,
        num_parameters: int,
        *,
        fixed: int | None = None,
        fraction: float | None = None,
    ) -> SelectionRule:
        """The rule of a space: its fixed or agreed K, else a share of M.

        Args:
            space: None if it does not exist yet.
            num_parameters: M.
            fixed: the K of a space that does not exist yet; None without one.
            fraction: the share of M by default; None for that of weights and differences.

        Raises:
            InvalidParameter: the K of the space exceeds the limit of this service.
        """
        k = fixed
        if space is not None:
            free = space.support_size.policy == "free"
            k = None if free else self.service.current(session, space).k
        if k is None:
            default = SelectionRule.of(num_parameters, fraction=fraction, kind="weight")
            k = min(default.k, self.most)
        if k > self.most:
            where = "its space" if space is None else f"space {space.name!r}"
            raise InvalidParameter(
                f"{where} requires supports of {k} indices, but this service selects "
                f"at most {self.most} (MODELKIN_MAX_INGESTED_INDICES)",
                field="support_size",
            )
        # All the mass, but at most K entries: a model with fewer positive ones has a smaller K.
        return SelectionRule(k, Fraction(1))


def select(
    model: Checkpoint,
    base: Checkpoint | None,
    about: Base,
    rule: SelectionRule,
    count: Counter,
    base_digest: str | None,
) -> Support:
    """Select the support of a checkpoint's weights, or of its difference from a base.

    Args:
        model: the checkpoint, with the tensors of its space, in their order.
        base: the same tensors of the base; None for the weights.
        about: the name of the base in messages.
        rule: the rule for K.
        count: a function of the number of parameters read, and of the most there may be.
        base_digest: the digest of the base's weights.

    Raises:
        InvalidCheckpoint: a weight is not finite.
        InvalidImportance: the model equals its base, or all its weights are zero.
    """
    of = 1 if base is None else 2
    done, total = 0, _PASSES * model.num_parameters * of

    def watched(chunks: Iterable[Floats]) -> Iterator[Floats]:
        nonlocal done
        for chunk in chunks:
            yield chunk
            done += chunk.size * of
            count(min(done, total), total)

    try:
        return select_from_checkpoint(model, base, rule, watched, base_digest)
    except InvalidImportance:
        if base is None or about.revision is None:
            raise
        name = named(about.revision)
        raise InvalidImportance(f"no weight differs from its base {name}") from None


def require_same(checkpoint: Checkpoint, base: Checkpoint, revision: HubRevision) -> None:
    """Require the same tensors, with a message that names the base's revision.

    Raises:
        SpaceMismatch: the base has other tensors.
    """
    mine = {tensor.name: tensor.shape for tensor in checkpoint.tensors}
    theirs = {tensor.name: tensor.shape for tensor in base.tensors}
    differing = sorted(
        name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)
    )
    if differing:
        example = differing[0]
        raise SpaceMismatch(
            f"its base {named(revision)} has another layout: {len(differing)} tensors differ, for "
            f"example {example!a}, of shape {_shown(mine.get(example))} in the model and "
            f"{_shown(theirs.get(example))} in the base"
        )


def _shown(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else str(list(shape))
