"""Judgement by an earlier revision of the base: a model may be made from what its base was."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.kinship.base_revisions import BaseRevisions, Pin, pin_of
from app.kinship.family import Family
from app.kinship.lineage_comparer import LineageComparer, require_time
from app.kinship.measurements import Measurements, judge_base
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.spaces.records import SpaceRecord
from modelkin.core.kinship.lineage import Judgement

__all__ = ["EarlierBases", "EarlierJudgement"]


@dataclass(frozen=True, slots=True)
class EarlierJudgement:
    """The judgement of a declared base that has changed.

    Attributes:
        revision: the earlier revision that decided; None if the present one did.
        note: a clause for people.
    """

    measured: Measurements
    judgement: Judgement
    revision: int | None
    note: str


class EarlierBases:
    """Judges a declared base by its earlier revisions, as far as they are kept.

    Args:
        reader: makes subjects.
    """

    def __init__(
        self, reader: ModelReader, comparer: LineageComparer, base_revisions: BaseRevisions
    ) -> None:
        self._reader = reader
        self._comparer = comparer
        self._base_revisions = base_revisions

    def judge(
        self,
        session: Reader,
        space: SpaceRecord,
        model: ModelRecord,
        family: Family,
        measured: Measurements,
        judgement: Judgement,
        deadline: Deadline,
    ) -> EarlierJudgement | None:
        """The judgement by an earlier revision of the base; None where the present one decides.

        A pinned revision decides alone, and leaves it open where it is not kept here: no other one
        stands in for it. Without a pin the nearest of all that are kept decides, unless the present
        one confirms the base; and a revision that cannot be compared leaves it open, since the
        model may be made from that.
        """
        base = models.find_model(session, space, measured.declared or "")
        if base is None or measured.base is None:
            return None
        pin = pin_of(model, base)
        number = None if pin is None else pin.number
        if pin is not None and number is None:
            return _unknown(measured, pin)
        if number == base.revision or (number is None and judgement.verdict == "consistent"):
            return None
        least = measured.base.similarity if number is None else -1.0
        revision, subject, compared = self._nearest_earlier(
            session, space, family, base, number, least, deadline
        )
        if pin is not None and subject is None:
            return _unknown(measured, pin)
        if subject is not None:
            measured = self._measure_from(session, space, family, measured, subject)
            again = judge_base(measured, family, contradict=True)
            assert again is not None, "the base was measured"
            judgement = again
        if judgement.verdict == "mismatch" and pin is None and compared < base.revision - 1:
            judgement = Judgement("inconclusive", "changed")
        elif revision is None:
            return None
        return EarlierJudgement(measured, judgement, revision, _note(pin, revision, base.revision))

    def _nearest_earlier(
        self,
        session: Reader,
        space: SpaceRecord,
        family: Family,
        base: ModelRecord,
        number: int | None,
        least: float,
        deadline: Deadline,
    ) -> tuple[int | None, Subject | None, int]:
        """The earlier revision of the base that is nearest to the model, and how many were read.

        Args:
            number: the only revision that is wanted; None for all.
            least: the similarity that a revision must exceed; None is returned where none does.
        """
        revision: int | None = None
        subject: Subject | None = None
        compared = 0
        for candidate, support in self._base_revisions.earlier(session, space, base, number):
            require_time(deadline)
            found = self._comparer.compare(session, space, support, [family.name]).get(family.name)
            compared += 1
            if found is not None and found.similarity > least:
                least, revision, subject = found.similarity, candidate, support
        return revision, subject, compared

    def _measure_from(
        self,
        session: Reader,
        space: SpaceRecord,
        family: Family,
        measured: Measurements,
        base: Subject,
    ) -> Measurements:
        """Measure again, with an earlier revision of the base in place of the present one."""
        names = [item.model for item in measured.rivals]
        found = self._comparer.compare(session, space, base, [family.name, *names])
        own = found.pop(family.name, None)
        rivals = [item for item in measured.rivals if item.model in found]
        model = self._reader.stored_subject(session, space, family.name)
        to_model = {item.model: item for item in rivals}
        return replace(
            measured,
            base=measured.base if own is None else replace(own, model=measured.declared or ""),
            rivals=rivals,
            to_base=found,
            over_common=self._comparer.rivals_over_common(
                session, space, model, base, (to_model, found)
            ),
        )


def _note(pin: Pin | None, revision: int | None, present: int) -> str:
    """The note about the revision of the base that was compared."""
    pinned = "" if pin is None else f"the model names revision {pin.text!r} of its base; "
    which = "the present one" if revision is None else f"its revision {revision} here"
    return f"{pinned}the base was compared at {which}, and has {present} revisions"


def _unknown(measured: Measurements, pin: Pin) -> EarlierJudgement:
    """The judgement where the pinned revision cannot be compared: nothing is said."""
    note = (
        f"the model names revision {pin.text!r} of its base, which is not among those kept here: "
        f"the present one was compared, which says nothing of that one"
    )
    return EarlierJudgement(measured, Judgement("inconclusive", "pinned"), None, note)
