"""``SupportSelector``: the supports of a checkpoint and their spaces.

The weights of every model go to one space. The difference from a base, if there is one, goes to a
sister of that space: the two kinds cannot be compared. An adapter has only differences, which go to
a space of its base and targets.
"""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from app.hubs.clients.protocol import HubRevision
from app.hubs.ingestion.bases import LACKING
from app.hubs.ingestion.files.checkpoint_fetcher import CheckpointFetcher, revision_label
from app.hubs.ingestion.files.resumption import Resumption
from app.hubs.ingestion.masks import tables_of_two_values
from app.hubs.ingestion.reading import FetchedReading, LinesRequest
from app.hubs.ingestion.results import IngestResult, SelectedModel
from app.hubs.ingestion.selection_plan import PlannedSize, Sizes, select
from app.hubs.ingestion.spaces.resolver import SpaceResolver
from app.hubs.ingestion.spaces.targets import SpaceTarget
from app.hubs.ingestion.stored_models import require_free
from app.hubs.records import ImportanceName
from app.infra.db.database import Database, Reader
from app.infra.errors import HubTimeout, HubUnavailable
from modelkin.checkpoints import Adapter, Checkpoint, select_from_checkpoint, weights_of
from modelkin.core.adapters import DEFAULT_FRACTION as ADAPTER_FRACTION
from modelkin.core.importance import MAX_BASE_LENGTH, MAX_NOTE_LENGTH, Importance
from modelkin.core.matching.correspondence import correspond
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.support import Support
from modelkin.core.weights import Weights
from modelkin.errors import InvalidImportance

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
        weights: the digests of all weights of the checkpoint.
        rounding: a note for a difference that is mostly rounding; None for others.
        notes: remarks on their sizes, on names of tensors, and on tensors that differ.
        forget: deletes what is kept for another attempt, once all is stored.
    """

    models: tuple[SelectedModel, ...]
    reason: str | None
    weights: Weights
    rounding: str | None = None
    notes: tuple[str, ...] = ()
    forget: Callable[[], None] = lambda: None


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


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The supports of a checkpoint before their spaces are made.

    Attributes:
        main: the space of the layout.
        supports: the supports, each with its part.
        resumption: the findings that are kept until the model is stored.
        apart: a note for a model that has another space than its base; None for others.
    """

    main: SpaceTarget
    supports: list[tuple[_Part, Support]]
    reason: str | None
    weights: Weights
    resumption: Resumption
    rounding: str | None = None
    apart: str | None = None


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
        fetching: CheckpointFetcher,
        count: Counting,
        tables: tuple[str, ...] = (),
        lines: LinesRequest | None = None,
    ) -> Selection:
        """Select the supports of a checkpoint; their spaces are created once all are selected.

        Args:
            checkpoint: the checkpoint of the model, or an adapter.
            base: the checkpoint of its base, with the same tensors; None for the weights alone and
                adapters.
            made: the findings about the model.
            fetching: fetches files as they are read.
            count: a function that is called as the checkpoint is read.
            tables: the tables that the checkpoint is without.
            lines: of the model, to be read in the same pass; adapters have none.

        Raises:
            SpaceMismatch: a space holds supports of another kind, base or layout.
            Conflict: another hub's model has the name.
            InvalidCheckpoint: a weight is not finite.
            InvalidImportance: all weights are zero, or a required difference is.
            InvalidParameter: a K exceeds the limit of this service, or no tensor is left.
        """
        while True:
            if isinstance(checkpoint, Adapter):
                chosen = self._choose_adapter(checkpoint, made, fetching, count)
            else:
                chosen = self._choose(checkpoint, base, made, fetching, count, tables, lines)
            models = []
            for part, support in chosen.supports:
                placed = self._resolver.make(
                    made.source.tenant, part.target, part.importance, chosen.main, part.own_k
                )
                if placed is None:
                    break  # another job has made it: its layout, its order and its K count.
                    # Where these are the same, what was found is restored, and nothing is read.
                models.append(SelectedModel(_importance_name(part), placed, support))
            else:
                sizes = [part.size.note for part, _ in chosen.supports if part.size.note]
                names = correspond(checkpoint.layout, chosen.main.layout).note
                said = [note for note in (names, chosen.apart) if note is not None]
                notes = dict.fromkeys([*_table_notes(tables), *said, *sizes])
                return Selection(
                    tuple(models),
                    chosen.reason,
                    chosen.weights,
                    chosen.rounding,
                    tuple(notes),
                    chosen.resumption.forget,
                )

    def _choose(
        self,
        checkpoint: Checkpoint,
        base: Checkpoint | None,
        made: IngestResult,
        fetching: CheckpointFetcher,
        count: Counting,
        tables: tuple[str, ...],
        lines: LinesRequest | None,
    ) -> _Chosen:
        """Read a model of weights, and its base, once, and select the supports."""
        source, weight = made.source, None
        exclude = (*source.exclude, *map(glob.escape, tables))
        with self._database.reading() as session:
            called = [*(base.name for base in made.base.named[:1]), made.name]
            main = self._resolver.find(
                session, source.tenant, source.space, checkpoint.layout, exclude, called
            )
            apart = None
            if base is not None and main.name != source.space:
                apart = self._resolver.apart(
                    session, source.tenant, source.space, checkpoint.layout, base.layout
                )
            if source.importance == "delta" and main.space is None and base is not None:
                main = replace(main, layout=base.layout)  # its children have it in common
            if source.importance != "delta":
                main.require(_WEIGHT)
                weight = self._part(session, made, _WEIGHT, main, main)
            usual = self._sister_size(session, main)
        reading = FetchedReading(checkpoint, main.layout, fetching.ranged, lines)
        if weight is not None:
            reading.ask_weights(weight.size.k_for)
        if base is not None:
            reading.ask_differences(base, usual.k_for)
        fetching.make_room(reading.one_pass.most_twice)
        resumption = fetching.resumption(made.recipe, made.difference_recipe, main.layout.digest)
        try:
            reading.fetch(partial(_count_stage, count, "reading"), resumption)
        except HubTimeout as error:
            if resumption.kept:
                raise HubUnavailable(f"{error}: the next attempt goes on from here") from None
            raise
        supports, reason = [], made.base.reason
        if weight is not None:
            support = reading.weights_support()
            assert support is not None  # so much was asked for
            supports.append((weight, support))
        if base is not None:
            try:
                supports.append(self._difference(checkpoint, base, made, main, reading))
            except (InvalidImportance, *LACKING) as error:
                if made.base.required:
                    raise
                reason = str(error)  # the base is at fault: the weights were read
        differs = any(_importance_name(part) == "delta" for part, _ in supports)
        note = reading.rounding_note if differs else None
        return _Chosen(main, supports, reason, reading.weights, resumption, note, apart)

    def _difference(
        self,
        checkpoint: Checkpoint,
        base: Checkpoint,
        made: IngestResult,
        main: SpaceTarget,
        reading: FetchedReading,
    ) -> tuple[_Part, Support]:
        """The support of the difference from a base, and the sister space that it is for."""
        assert made.base.revision is not None
        importance = _difference_importance(reading.base_digest, made.base.revision)
        with self._database.reading() as session:
            sister = self._resolver.find_sister(session, made.source.tenant, main, importance)
            part = self._part(session, made, importance, sister, main)
        try:
            support = reading.difference_support(part.size.k_for)
            if support is None:  # that space wants more than is usual: read once more
                model, others = checkpoint.fitted(main.layout).beside(base)
                k = part.size.k_for(model.num_parameters / main.layout.num_parameters)
                rule = SelectionRule(k, Fraction(1))
                support = select_from_checkpoint(model, others, rule, None, reading.base_digest)
                support = support.reordered(main.layout)
        except InvalidImportance:
            label = revision_label(made.base.revision)
            alike = checkpoint.dtypes.keys() == base.dtypes.keys()
            more = "" if alike else " by more than rounding"
            raise InvalidImportance(f"no weight differs from its base {label}{more}") from None
        return part, support

    def _choose_adapter(
        self, adapter: Adapter, made: IngestResult, fetching: CheckpointFetcher, count: Counting
    ) -> _Chosen:
        """Select the support of an adapter."""
        main, part = self._plan_adapter(adapter, made)
        model = adapter.in_order(main.layout)
        support = select(model, part.size.rule, partial(_count_stage, count, "selecting by delta"))
        support = support.reordered(main.layout)
        weights = weights_of(adapter)
        fetching.ranged.finish()
        return _Chosen(main, [(part, support)], made.base.reason, weights, Resumption())

    def _plan_adapter(self, adapter: Adapter, made: IngestResult) -> tuple[SpaceTarget, _Part]:
        """The space of adapters of the same base and targets, and the support to be selected."""
        source, base = made.source, made.base.name
        of = f"adapters of {base}" if base else "adapters of an unknown base"
        about = f"{adapter.algorithm} {of}, by {adapter.measure}"
        importance = Importance("delta", None, about[:MAX_NOTE_LENGTH])
        with self._database.reading() as session:
            target = self._resolver.find_adapters(
                session,
                source.tenant,
                source.space,
                adapter.layout,
                source.exclude,
                base,
                made.name,
                None if base is None else made.base.named[0].former,
            )
            target.require(importance)
            part = self._part(session, made, importance, target, target, fraction=ADAPTER_FRACTION)
        return target, part

    def _sister_size(self, session: Reader, main: SpaceTarget) -> PlannedSize:
        """The usual size of differences beside a space, before their own space is known."""
        fixed = None if main.space is None else main.space.support_size.k
        return self._sizes.rule(session, None, main.layout.num_parameters, fixed=fixed)

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


def _count_stage(count: Counting, stage: str, done: int, total: int) -> None:
    count(done, total, stage)


def _importance_name(part: _Part) -> ImportanceName:
    return "delta" if part.importance.kind == "delta" else "weight"


def _difference_importance(digest: str, base: HubRevision) -> Importance:
    """The importance of differences from a base of this digest."""
    name = f"{base.model_name}@{digest}"
    note = f"differences from {revision_label(base)}"[:MAX_NOTE_LENGTH]
    return Importance("delta", name if len(name) <= MAX_BASE_LENGTH else digest, note)


def _table_notes(tables: tuple[str, ...]) -> list[str]:
    """The note for tables that are left out; none without any."""
    if not tables:
        return []
    what = "a tensor of two values" if len(tables) == 1 else f"{len(tables)} tensors of two values"
    return [f"left out {what}, as masks are, which no training changed: {tables[0]!a}"]
