"""Lineage: the declared base of a model, beside the measured similarities.

:mod:`modelkin.core.kinship.lineage` has the rules. This module collects their inputs: the declared
family, the nearest models and their relations, and the background of all other models. In a space
of weights kappa is an input, too. Lineage cannot be read in a space of differences: its answers say
so, and contradict nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.kinship.base_revisions import BaseRevisions
from app.kinship.earlier_bases import EarlierBases, EarlierJudgement
from app.kinship.family import Family
from app.kinship.lineage_comparer import LineageComparer, require_time
from app.kinship.lineage_summary import summary_of
from app.kinship.measurements import Measurements, judge_base, kin_of
from app.kinship.neighborhood import Neighborhood, scan_neighborhood
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.index.registry import IndexRegistry
from app.models.spaces.records import SpaceRecord
from app.search.comparer import Comparer
from app.search.constants import Constants, SpaceConstants, tensors_in_words
from app.search.service import SearchService
from modelkin.core.kinship.lineage import (
    MIN_BACKGROUND_MODELS,
    Judgement,
    LineageVerdict,
    lineage_verdict,
)
from modelkin.core.similarity.background import Background
from modelkin.types.kinship import SimilarityBaseline
from modelkin.types.lineages import Kin, Lineage, LineageLink
from modelkin.types.search import Neighbor

__all__ = ["LineageService"]

_MAX_INSPECTED, _MAX_RETURNED = 25, 10
"""Nearest models that are compared, since some may be relatives, and those that are returned."""
_DIFFERENCES_NOTE = (
    "this space holds differences from a base, which show what was tuned alike; lineage is read in "
    "a space of weights"
)
_OF_DATA: Final = frozenset({"fisher", "grad_moment", "adam"})
"""Kinds of importance that depend on the data of a model more than on its base."""
_DATA_NOTE = (
    "in this space near models have similar data, whatever they were made from; lineage is read in "
    "a space of weights"
)
_NOTES: Final = {"delta": _DIFFERENCES_NOTE, **dict.fromkeys(_OF_DATA, _DATA_NOTE)}
"""The note of an answer, by the space's kind of importance, if lineages cannot be read there."""
_MANY_TIMES: Final = 1.25
"""The ratio of two sizes of supports beyond which S says little: S is 0.89 at most."""


class LineageService:
    """The use case that compares a declared base with the measurements."""

    def __init__(
        self,
        reader: ModelReader,
        comparer: Comparer,
        search: SearchService,
        indexes: IndexRegistry,
        base_revisions: BaseRevisions,
        constants: SpaceConstants,
    ) -> None:
        self._constants = constants
        self._reader = reader
        self._comparer = LineageComparer(comparer)
        self._earlier_bases = EarlierBases(self._comparer, base_revisions)
        self._search = search
        self._indexes = indexes

    def lineage(
        self, session: Reader, space: SpaceRecord, name: str, deadline: Deadline = NEVER
    ) -> Lineage:
        """Return the lineage of a stored model.

        Raises:
            ModelNotFound: there is no such model.
            TooMuch, ClientLeft: the deadline is over, or the client has gone; partial evidence
                would mislead.
        """
        require_time(deadline)
        subject = self._reader.stored_subject(session, space, name)
        assert subject.model is not None
        declared = subject.model.base_model
        constants = self._find_constants(session, space, subject)
        near = self._search.neighbors(session, space, subject, k=_MAX_INSPECTED)
        require_time(deadline)
        family = Family.of(session, space, name, declared, [item.model for item in near])
        neighborhood = scan_neighborhood(self._indexes, session, space, subject, constants)
        measured = self._measure(session, space, family, near.items, neighborhood)
        require_time(deadline)
        is_differences = space.importance.kind == "delta"
        judgement = judge_base(measured, family, contradict=not is_differences)
        earlier: EarlierJudgement | None = None
        if judgement is not None and not is_differences:
            earlier = self._earlier_bases.judge(
                session, space, subject.model, family, measured, judgement, deadline
            )
        if earlier is not None:
            measured, judgement = earlier.measured, earlier.judgement
        unseen = bool(constants) and measured.base is not None and measured.base.kappa is None
        if judgement is not None and unseen and not is_differences:
            judgement = Judgement("inconclusive", "unclear")  # constants may be all that they share
        verdict = lineage_verdict(
            judgement, declared=declared is not None, circular=_leads_back(family)
        )
        rival = _rival(measured, judgement)
        reason = None if judgement is None or verdict == "cycle" else judgement.reason
        likely = None
        if reason == "rival" and rival is not None:
            likely = rival.model
        elif not is_differences:
            likely = _likely_base(session, space, family, measured, neighborhood, verdict)
        background = measured.background
        lineage = Lineage(
            model=name,
            verdict=verdict,
            reason=reason,
            summary="",
            declared_base=declared,
            likely_base=likely,
            base=_kin(measured.base, measured, family),
            base_revision=None if earlier is None else earlier.revision,
            rival=_kin(rival, measured, family),
            kin=tuple(kin_of(item, measured, family) for item in near[:_MAX_RETURNED]),
            usual=SimilarityBaseline(background.mean, background.deviation, background.models),
            limit=background.limit,
            chain=tuple(self._links(session, space, family, measured.base, deadline)),
            cycle=family.cycle,
            note=_NOTES.get(space.importance.kind, space.note),
            constant_tensors=constants.names,
        )
        sizes = _of_two_sizes(session, space, subject.model.support_size, declared)
        past = None if earlier is None else earlier.note
        said = [past, None if is_differences else sizes, _NOTES.get(space.importance.kind)]
        said.append(_left_out(constants, unseen=unseen))
        return summary_of(lineage, said, of_data=space.importance.kind in _OF_DATA)

    def _find_constants(self, session: Reader, space: SpaceRecord, subject: Subject) -> Constants:
        """The tensors that are left out; the model and its declared base may show them alone."""
        subjects = [subject]
        declared = None if subject.model is None else subject.model.base_model
        if declared is not None and candidates_by_name(session, space, [declared]):
            subjects.append(self._reader.stored_subject(session, space, declared))
        return self._constants.of(session, space, *subjects)

    def _measure(
        self,
        session: Reader,
        space: SpaceRecord,
        family: Family,
        near: Sequence[Neighbor],
        neighborhood: Neighborhood,
    ) -> Measurements:
        """Compare the model with its base, and its rivals with that."""
        declared, base, to_base = family.declared, None, dict[str, Neighbor]()
        rivals = [item for item in near if family.relation(item.model) in {None, "ancestor"}]
        if declared is not None and declared != family.name and declared in family.bases:
            subject = self._reader.stored_subject(session, space, family.name)
            base = self._comparer.compare(session, space, subject, [declared]).get(declared)
        if base is not None and declared is not None:
            subject = self._reader.stored_subject(session, space, declared)
            to_base = self._comparer.compare(
                session, space, subject, [item.model for item in rivals]
            )
            rivals = [item for item in rivals if item.model in to_base]
        background, unrelated = _background(session, space, neighborhood, family)
        is_weights = space.importance.kind == "weight"
        return Measurements(is_weights, near, base, rivals, to_base, background, unrelated)

    def _links(
        self,
        session: Reader,
        space: SpaceRecord,
        family: Family,
        first: Neighbor | None,
        deadline: Deadline,
    ) -> list[LineageLink]:
        """Return the declared bases, each with its similarity to the model that declares it.

        Args:
            first: the declared base of the model itself, measured already.
            deadline: the time after which the lineage is refused.
        """
        links = []
        for model, base in family.chain:
            require_time(deadline)
            found = first
            if model != family.name:
                subject = self._reader.stored_subject(session, space, model)
                found = self._comparer.compare(session, space, subject, [base]).get(base)
            links.append(
                LineageLink(
                    model=model,
                    base_model=base,
                    similarity=None if found is None else found.similarity,
                    estimate=None if found is None else found.estimate,
                    standard_error=None if found is None else found.standard_error,
                    expected=None if found is None else found.expected,
                    kappa=None if found is None else found.kappa,
                )
            )
        return links


def _left_out(constants: Constants, *, unseen: bool) -> str | None:
    """The clause for tensors that are left out; None without any."""
    if not constants:
        return None
    left = f"{tensors_in_words(constants.names)}, which no training changed"
    if unseen:
        return f"there is nothing to compare but {left}, or a signature, which cannot leave it out"
    return f"the comparison leaves out {left}"


def _of_two_sizes(
    session: Reader, space: SpaceRecord, size: int, declared: str | None
) -> str | None:
    """The note for a base whose support has a very different size, which bounds S; else None."""
    found = candidates_by_name(session, space, [] if declared is None else [declared])
    for base in found:
        small, large = sorted((size, base.support_size))
        if small and large > _MANY_TIMES * small:
            return (
                f"the model's support has {size:,} indices and the base's {base.support_size:,}, "
                f"so S is at most {2 * small / (small + large):.3f}, and less than models of one "
                f"size would have: send both at one size to compare them"
            )
    return None


def _background(
    session: Reader, space: SpaceRecord, neighborhood: Neighborhood, family: Family
) -> tuple[Background, bool]:
    """The background of the declared strangers, and True; or of all but the base, and False.

    The second is used if there are too few strangers.
    """
    relatives = family.relatives(session, space)
    background = neighborhood.background(unrelated=True, without=relatives)
    if background.models >= MIN_BACKGROUND_MODELS:
        return background, True
    declared = [] if family.declared is None else [family.declared]
    base = [candidate.id for candidate in candidates_by_name(session, space, declared)]
    return neighborhood.background(unrelated=True, without=base), False


def _leads_back(family: Family) -> bool:
    """Whether the declared bases of a model lead back to the model itself."""
    return bool(family.cycle) and family.chain[-1][1] == family.name


def _rival(measured: Measurements, judgement: Judgement | None) -> Neighbor | None:
    """The rival that decided, if one did."""
    if judgement is None or judgement.rival is None:
        return None
    return measured.rivals[judgement.rival]


def _kin(item: Neighbor | None, measured: Measurements, family: Family) -> Kin | None:
    """The model as evidence, or None without a model."""
    return None if item is None else kin_of(item, measured, family)


def _likely_base(
    session: Reader,
    space: SpaceRecord,
    family: Family,
    measured: Measurements,
    neighborhood: Neighborhood,
    verdict: LineageVerdict,
) -> str | None:
    """The model that stands out as the likely base, if the declared one may not be it."""
    if verdict in {"consistent", "inconclusive"}:
        return None
    likely = measured.standing_out(measured.background, family.bases)
    if likely is not None or verdict != "mismatch":
        return likely
    # The base is contradicted, so those that declare it are strangers too.
    made_from_it = family.derivatives(session, space)
    everyone = neighborhood.background(unrelated=True, without=made_from_it)
    return measured.standing_out(everyone, family.bases)
