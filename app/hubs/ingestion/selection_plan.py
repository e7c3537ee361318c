"""How the support of a model is made: by which importance, against which base, of which size.

The rules stand here, and nothing is downloaded or selected but what is handed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from app.errors import HubForbidden, HubNotFound, HubProtocolError
from app.hubs.clients.protocol import Hub, HubRevision
from app.hubs.ingestion.checkpoint_fetcher import Counter, named
from app.hubs.ingestion.checkpoint_files import choose
from app.hubs.ingestion.space_resolver import in_order
from app.hubs.records import Importance
from app.infra.db.database import Reader
from app.spaces.records import SpaceRecord
from app.spaces.support_sizes import SupportSizeService
from modelkin.checkpoints import Checkpoint, select_from_checkpoint
from modelkin.core.layout import Layout
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

__all__ = ["LACKING", "Base", "Selected", "Sizes", "base_of", "require_same", "select"]

LACKING: Final = (HubNotFound, HubForbidden, HubProtocolError, InvalidCheckpoint, PayloadTooLarge)
"""Why a base may not be had, for good."""

_PASSES: Final = 3
"""Times that a checkpoint is read, at most."""


Selected = tuple[Support, Importance, str | None]
"""A support, by which importance, and why not by another."""


@dataclass(frozen=True, slots=True)
class Base:
    """What a model was made from, as far as anybody says.

    Attributes:
        revision: of it, on the hub; None where there is none to compare with.
        required: ``delta`` was asked for, so that it cannot be done without.
        note: why there is none, where a model declares one.
    """

    revision: HubRevision | None
    required: bool
    note: str | None = None

    def without(self, error: ModelkinError, name: str, of: HubRevision) -> Base:
        """The same without a revision, where that will do.

        Args:
            error: one of :data:`LACKING`, why the base cannot be had; raised where one is needed.
            name: of the base; ``of`` the model.
        """
        if self.required:
            raise type(error)(f"the base of {named(of)}: {error}") from None
        return Base(None, required=False, note=f"no delta: the base {name} is not given ({error})")


def base_of(
    hub: Hub, revision: HubRevision, importance: Importance | None, configured: str | None
) -> Base:
    """The base that a model declares or, failing that, the one that its source names.

    Args:
        hub: where both are.
        revision: the model's.
        importance: that the source asks for; None takes ``delta`` where there is a base.
        configured: ``name`` for its newest revision, or ``name@revision`` for that one.

    Raises:
        InvalidParameter: ``delta`` is asked for, and nobody names a base.
        HubNotFound, HubForbidden, HubProtocolError, InvalidCheckpoint: or the hub does not give it.
    """
    if importance == "weight":
        return Base(None, required=False)
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
        return Base(None, required=False)
    try:
        base = hub.look_up(name, pinned or None)
        choose(base.files, named(base))
    except LACKING as error:
        return Base(None, required).without(error, name, revision)
    return Base(base, required)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large supports become.

    Attributes:
        service: knows what a space asks.
        most: indices of a support, so that memory is bounded however large checkpoints are.
    """

    service: SupportSizeService
    most: int

    def rule(
        self, session: Reader, space: SpaceRecord | None, num_parameters: int
    ) -> SelectionRule:
        """That of a space: its fixed or agreed K, else the default of ``select_support``.

        Args:
            space: None where it is yet to be made.
            num_parameters: M.

        Raises:
            InvalidParameter: the K of the space is more than are selected here.
        """
        k = None
        if space is not None and space.support_size.policy != "free":
            k = self.service.current(session, space).k
        if space is None or k is None:
            rule = SelectionRule.of(num_parameters)
            return replace(rule, k=min(rule.k, self.most))
        if k > self.most:
            raise InvalidParameter(
                f"space {space.name!r} wants supports of {k} indices, at most {self.most} are "
                f"selected here (MODELKIN_MAX_INGESTED_INDICES)",
                field="support_size",
            )
        # All the mass, but no more than K entries: who has fewer that are positive gives these.
        return SelectionRule(k, Fraction(1))


def select(
    checkpoint: Checkpoint,
    base: Checkpoint | None,
    about: Base,
    layout: Layout | None,
    rule: SelectionRule,
    count: Counter,
) -> Selected:
    """The support of a checkpoint, by which importance, and why not by ``delta`` where that was
    meant.

    Args:
        layout: in whose order parameters are; None for that of the names.

    Raises:
        SpaceMismatch: ``delta`` is asked for, and the base is of another layout.
        InvalidCheckpoint: a weight is not finite.
        InvalidImportance: the model is its base, or nothing but zeros.
    """
    note, model = about.note, in_order(checkpoint, layout)
    if base is not None and about.revision is not None:
        try:
            require_same(checkpoint, base, about.revision)
            paired = in_order(base, model.layout)
            return _selected(model, paired, rule, count, of=2), "delta", note
        except (SpaceMismatch, InvalidImportance) as error:
            if about.required:
                raise _explained(error, about.revision) from None
            note = f"no delta: {_explained(error, about.revision)}"
    return _selected(model, None, rule, count, of=1), "weight", note


def _selected(
    model: Checkpoint, base: Checkpoint | None, rule: SelectionRule, count: Counter, *, of: int
) -> Support:
    """Counted by what is read, of one checkpoint or two."""
    done, total = 0, _PASSES * model.num_parameters * of

    def watched(chunks: Iterable[Floats]) -> Iterator[Floats]:
        nonlocal done
        for chunk in chunks:
            yield chunk
            done += chunk.size * of
            count(min(done, total), total)

    return select_from_checkpoint(model, base, rule, watched)


def require_same(checkpoint: Checkpoint, base: Checkpoint, revision: HubRevision) -> None:
    """The importer's own words: files of two models may have the same name.

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
            f"its base {named(revision)} is of another layout: {len(differing)} tensors differ, "
            f"{example!a} for one, of shape {_shown(mine.get(example))} here and "
            f"{_shown(theirs.get(example))} there"
        )


def _shown(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else str(list(shape))


def _explained(error: Exception, base: HubRevision) -> Exception:
    if isinstance(error, InvalidImportance):
        return InvalidImportance(f"it differs in no weight from its base {named(base)}")
    return error
