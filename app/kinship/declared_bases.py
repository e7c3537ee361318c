"""The judgement of each declared base of a model: a merge declares several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.kinship.base_revisions import BaseRevisions
from app.kinship.earlier_bases import EarlierBases
from app.kinship.family import Family
from app.kinship.lineage_comparer import LineageComparer, require_time
from app.kinship.lines.judge import Lines
from app.kinship.lines.records import JudgedByLines
from app.kinship.measurements import Measurements, judge_base
from app.kinship.pair_backgrounds import PairBackgrounds
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelRecord
from app.models.spaces.records import SpaceRecord
from modelkin.core.kinship.lineage import Judgement, LineageVerdict, Rival, weight_of
from modelkin.core.similarity.background import Background
from modelkin.types.lineages import DeclaredBase
from modelkin.types.search import Neighbor

__all__ = ["BaseJudge", "JudgedBase", "deciding_base"]


@dataclass(frozen=True, slots=True)
class JudgedBase:
    """A declared base, measured and judged.

    Attributes:
        measured: the similarities around the model and this base.
        judgement: None where the base is not in the space, or none is declared.
        revision: the earlier revision of the base that decided; None where the present one did.
        note: a clause for people; None for none.
        lines: what lines in common say of the base; None where one of the two has no fingerprint.
    """

    measured: Measurements
    judgement: Judgement | None
    revision: int | None = None
    note: str | None = None
    lines: JudgedByLines | None = None

    def beside(self, lines: Lines | None) -> JudgedBase:
        """The same with what lines say, which alone judge a base that is not in the space."""
        found = None if lines is None else lines.bases.get(self.measured.declared or "")
        if found is None:
            return self
        return replace(self, judgement=self.judgement or found.by_lines, lines=found)

    @property
    def verdict(self) -> LineageVerdict:
        """The verdict on this base."""
        return "unknown_base" if self.judgement is None else self.judgement.verdict

    @property
    def shown(self) -> DeclaredBase:
        """The base and the judgement of it alone."""
        base, judgement = self.measured.base, self.judgement
        return DeclaredBase(
            base_model=self.measured.declared or "",
            verdict=self.verdict,
            reason=None if judgement is None else judgement.reason,
            similarity=None if base is None else base.similarity,
            kappa=None if base is None else base.kappa,
            revision=self.revision,
            covered=None if base is None else base.covered,
            lines=None if self.lines is None else self.lines.shown,
        )


class BaseJudge:
    """Measures and judges declared bases.

    Args:
        reader: makes subjects.
        comparer: compares them.
        base_revisions: reads earlier revisions of bases.
    """

    def __init__(
        self, reader: ModelReader, comparer: LineageComparer, base_revisions: BaseRevisions
    ) -> None:
        self._reader = reader
        self._comparer = comparer
        self._earlier_bases = EarlierBases(reader, comparer, base_revisions)

    def judge(
        self,
        session: Reader,
        space: SpaceRecord,
        model: ModelRecord,
        family: Family,
        near: Sequence[Neighbor],
        background: tuple[Background, bool],
        pairs: PairBackgrounds,
        deadline: Deadline,
    ) -> list[JudgedBase]:
        """Judge each declared base; one without a judgement stands for a model without a base.

        Args:
            near: the nearest models.
            background: see :class:`app.kinship.measurements.Measurements`: the background, and
                whether it is of strangers.
            pairs: the backgrounds of the model together with others.
            deadline: the time after which the lineage is refused.
        """
        found = []
        for declared in family.declared or (None,):
            require_time(deadline)
            measured = self._measure(session, space, family, declared, near, background)
            measured = replace(measured, pairs=pairs)
            found.append(self._judge(session, space, model, family, measured, deadline))
        return found

    def _judge(
        self,
        session: Reader,
        space: SpaceRecord,
        model: ModelRecord,
        family: Family,
        measured: Measurements,
        deadline: Deadline,
    ) -> JudgedBase:
        is_differences = space.importance.kind == "delta"
        judgement = judge_base(measured, family, contradict=not is_differences)
        if judgement is None or is_differences:
            return JudgedBase(measured, judgement)
        earlier = self._earlier_bases.judge(
            session, space, model, family, measured, judgement, deadline
        )
        if earlier is None:
            return JudgedBase(measured, judgement)
        return JudgedBase(earlier.measured, earlier.judgement, earlier.revision, earlier.note)

    def _measure(
        self,
        session: Reader,
        space: SpaceRecord,
        family: Family,
        declared: str | None,
        near: Sequence[Neighbor],
        background: tuple[Background, bool],
    ) -> Measurements:
        """Compare the model with a base, and its rivals with that."""
        base, to_base, over_common = None, dict[str, Neighbor](), dict[str, Rival]()
        rivals = [item for item in near if family.relation(item.model) in {None, "ancestor"}]
        if declared is not None and declared != family.name and declared in family.bases:
            model = self._reader.stored_subject(session, space, family.name)
            base = self._comparer.compare(session, space, model, [declared]).get(declared)
            if base is not None:
                subject = self._reader.stored_subject(session, space, declared)
                names = [item.model for item in rivals]
                to_base = self._comparer.compare(session, space, subject, names)
                rivals = [item for item in rivals if item.model in to_base]
                to_model = {item.model: item for item in rivals}
                over_common = self._comparer.rivals_over_common(
                    session, space, model, subject, (to_model, to_base)
                )
        is_weights = space.importance.kind == "weight"
        return Measurements(
            declared, is_weights, near, base, rivals, to_base, *background, over_common
        )


def deciding_base(bases: Sequence[JudgedBase]) -> JudgedBase:
    """The base that the verdict on a model is about: the first of those that weigh most."""
    return min(bases, key=lambda each: weight_of(each.verdict))
