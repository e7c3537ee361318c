"""``SupportSelector``: the supports of a checkpoint and their spaces.

The weights of every model go to one space. The difference from a base, if there is one, goes to a
sister of that space: the two kinds cannot be compared. An adapter has only differences, which go to
a space of its base and targets.
"""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from app.hubs.ingestion.files.checkpoint_fetcher import CheckpointFetcher, Counter, revision_label
from app.hubs.ingestion.results import IngestResult, SelectedModel
from app.hubs.ingestion.selection_plan import PlannedSize, Sizes, select
from app.hubs.ingestion.space_resolver import SpaceResolver, SpaceTarget
from app.hubs.ingestion.stored_models import require_free
from app.hubs.ingestion.tables import tables_of_two_values
from app.hubs.records import ImportanceName
from app.infra.db.database import Database, Reader
from modelkin.checkpoints import Adapter, Checkpoint, rounding_note, weights_digest
from modelkin.core.adapters import DEFAULT_FRACTION as ADAPTER_FRACTION
from modelkin.core.importance import MAX_BASE_LENGTH, MAX_NOTE_LENGTH, Importance
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.support import Support
from modelkin.errors import InvalidCheckpoint, InvalidImportance

__all__ = ["Selection", "SupportSelector"]

_WEIGHT = Importance("weight")

Counting = Callable[[int, int, str], None]
"""A function of the work done, the work in all, and the name of the work."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The supports of a checkpoint.

    Attributes:
        models: the support of the weights, that of the difference from the base, or both in this
            order.
        reason: the reason why there is no difference from a base; None if there is one.
        rounding: a note for a difference that is mostly rounding; None for others.
        notes: remarks on their sizes, and on names of tensors.
    """

    models: tuple[SelectedModel, ...]
    reason: str | None
    rounding: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """A support to be selected: by which importance, for which space, and of which size."""

    importance: Importance
    target: SpaceTarget
    size: PlannedSize

    @property
    def own_k(self) -> int | None:
        """The K that a new space fixes, so that clients select as many as this service."""
        return None if self.size.usual is None else self.size.rule.k


class SupportSelector:
    """Selects supports.

    Args:
        resolver: finds or creates spaces.
    """

    def __init__(self, database: Database, resolver: SpaceResolver, sizes: Sizes) -> None:
        self._database = database
        self._resolver = resolver
        self._sizes = sizes

    def exclude(self, made: IngestResult) -> tuple[str, ...]:
        """The patterns of the tensors that the model's source and its space leave out."""
        source = made.source
        return self._resolver.exclude(source.tenant, source.space, source.exclude)

    def without_tables(
        self, fetching: CheckpointFetcher, checkpoint: Checkpoint, made: IngestResult
    ) -> tuple[Checkpoint, tuple[str, ...]]:
        """Leave out the masks and one-hot tables of a checkpoint, and so of its base; return them.

        A space that has them keeps them: its supports were selected beside them.
        """
        if isinstance(checkpoint, Adapter):
            return checkpoint, ()
        found = tables_of_two_values(checkpoint.tensors)
        if not found or len(found) == len(checkpoint.tensors):
            return checkpoint, ()
        source = made.source
        with self._database.reading() as session:
            target = self._resolver.find(
                session, source.tenant, source.space, checkpoint.layout, source.exclude
            )
        if target.space is not None:
            return checkpoint, ()
        fetching.exclude = (*fetching.exclude, *map(glob.escape, found))
        return checkpoint.without(found), found

    def select(
        self,
        checkpoint: Checkpoint,
        base: Checkpoint | None,
        made: IngestResult,
        count: Counting,
        tables: tuple[str, ...] = (),
    ) -> Selection:
        """Select the supports of a checkpoint; their spaces are created once all are selected.

        Args:
            checkpoint: the checkpoint of the model, or an adapter.
            base: the checkpoint of its base, with the same tensors; None for the weights alone and
                adapters.
            made: the findings about the model.
            count: a function that is called as the checkpoint is read.
            tables: the tables that the checkpoint is without.

        Raises:
            SpaceMismatch: a space holds supports of another kind, base or layout.
            Conflict: another hub's model has the name.
            InvalidCheckpoint: a weight is not finite.
            InvalidImportance: all weights are zero, or a required difference is.
            InvalidParameter: a K exceeds the limit of this service, or no tensor is left.
        """
        while True:
            if isinstance(checkpoint, Adapter):
                main, parts = self._plan_adapter(checkpoint, made)
            else:
                main, parts = self._plan(checkpoint, base, made, count, tables)
            chosen, reason = _select_supports(checkpoint, base, made, parts, count)
            models = []
            for part, support in chosen:
                placed = self._resolver.make(
                    made.source.tenant, part.target, part.importance, main, part.own_k
                )
                if placed is None:
                    break  # another job has made it: its layout, its order and its K count
                models.append(SelectedModel(_importance_name(part), placed, support))
            else:
                differs = base is not None and any(one.importance == "delta" for one in models)
                rounding = rounding_note(checkpoint, base) if base is not None and differs else None
                sizes = [part.size.note for part, _ in chosen if part.size.note is not None]
                names = correspond(checkpoint.layout, main.layout).note
                left_out = _table_notes(tables)
                notes = dict.fromkeys([*left_out, *([] if names is None else [names]), *sizes])
                return Selection(tuple(models), reason, rounding, tuple(notes))

    def _plan(
        self,
        checkpoint: Checkpoint,
        base: Checkpoint | None,
        made: IngestResult,
        count: Counting,
        tables: tuple[str, ...],
    ) -> tuple[SpaceTarget, list[_Part]]:
        """The space of the layout, and the supports to be selected."""
        source, parts = made.source, []
        exclude = (*source.exclude, *map(glob.escape, tables))
        with self._database.reading() as session:
            main = self._resolver.find(
                session, source.tenant, source.space, checkpoint.layout, exclude
            )
            if source.importance == "delta" and main.space is None and base is not None:
                main = replace(main, layout=base.layout)  # its children have it in common
            if source.importance != "delta":
                main.require(_WEIGHT)
                parts.append(self._part(session, made, _WEIGHT, main, main))
        if base is not None:
            count(0, 0, "reading its base")
            difference = _difference_importance(base, main.layout, made)
            with self._database.reading() as session:
                sister = self._resolver.find_sister(session, source.tenant, main, difference)
                parts.append(self._part(session, made, difference, sister, main))
        return main, parts

    def _plan_adapter(
        self, adapter: Adapter, made: IngestResult
    ) -> tuple[SpaceTarget, list[_Part]]:
        """The space of adapters of the same base and targets, and the support to be selected."""
        source, base = made.source, made.base.name
        of = f"adapters of {base}" if base else "adapters of an unknown base"
        about = f"{adapter.algorithm} {of}, by {adapter.measure}"
        importance = Importance("delta", None, about[:MAX_NOTE_LENGTH])
        with self._database.reading() as session:
            target = self._resolver.find_adapters(
                session, source.tenant, source.space, adapter.layout, source.exclude, base
            )
            target.require(importance)
            part = self._part(session, made, importance, target, target, fraction=ADAPTER_FRACTION)
        return target, [part]

    def _part(
        self,
        session: Reader,
        made: IngestResult,
        importance: Importance,
        target: SpaceTarget,
        main: SpaceTarget,
        fraction: float | None = None,
    ) -> _Part:
        if target.space is not None:
            require_free(session, target.space, made)
        fixed = None if main.space is None else main.space.support_size.k
        size = target.layout.num_parameters
        planned = self._sizes.rule(session, target.space, size, fixed=fixed, fraction=fraction)
        return _Part(importance, target, planned)


def _select_supports(
    checkpoint: Checkpoint,
    base: Checkpoint | None,
    made: IngestResult,
    parts: list[_Part],
    count: Counting,
) -> tuple[list[tuple[_Part, Support]], str | None]:
    """The supports, and why there is no difference from the base."""
    chosen: list[tuple[_Part, Support]] = []
    reason = made.base.reason
    for part in parts:
        layout, name = part.target.layout, _importance_name(part)
        other = base if name == "delta" else None
        counting: Counter = partial(_count_stage, count, f"selecting by {name}")
        try:
            model, paired = _pair(checkpoint, other, layout)
            digest = part.importance.base_digest
            rule = part.size.rule_for(model.num_parameters / layout.num_parameters)
            support = select(model, paired, made.base, rule, counting, digest)
            support = support.reordered(layout)  # the same indices, by the names of the space
        except (InvalidImportance, InvalidCheckpoint) as error:
            if other is None or made.base.required:
                raise
            reason = str(error)  # the base is at fault: the weights were read before
        else:
            chosen.append((part, support))
    return chosen, reason


def _pair(
    checkpoint: Checkpoint, base: Checkpoint | None, layout: Layout
) -> tuple[Checkpoint, Checkpoint | None]:
    """What a checkpoint and its base have of a layout, in its order."""
    if isinstance(checkpoint, Adapter):
        return checkpoint.in_order(layout), base
    model = checkpoint.fitted(layout)
    return (model, None) if base is None else model.beside(base)


def _count_stage(count: Counting, stage: str, done: int, total: int) -> None:
    count(done, total, stage)


def _importance_name(part: _Part) -> ImportanceName:
    return "delta" if part.importance.kind == "delta" else "weight"


def _difference_importance(base: Checkpoint, layout: Layout, made: IngestResult) -> Importance:
    """The importance of differences from a base."""
    assert made.base.revision is not None
    digest = weights_digest(base, correspond(base.layout, layout).common)
    name = f"{made.base.revision.model_name}@{digest}"
    note = f"differences from {revision_label(made.base.revision)}"[:MAX_NOTE_LENGTH]
    return Importance("delta", name if len(name) <= MAX_BASE_LENGTH else digest, note)


def _table_notes(tables: tuple[str, ...]) -> list[str]:
    """The note for tables that are left out; none without any."""
    if not tables:
        return []
    what = "a tensor of two values" if len(tables) == 1 else f"{len(tables)} tensors of two values"
    return [f"left out {what}, as masks are, which no training changed: {tables[0]!a}"]
