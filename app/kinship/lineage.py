"""Lineage: the declared base of a model, beside the measured similarities.

:mod:`modelkin.core.kinship.lineage` has the rules. This module collects their inputs: the declared
family, the nearest models and their relations, and the background of all other models. In a space
of weights kappa is an input, too. Lineage cannot be read in a space of differences: its answers say
so, and contradict nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from app.hubs.ingestion.stored_models import hub_of
from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.kinship.base_revisions import BaseRevisions
from app.kinship.declared_bases import BaseJudge, JudgedBase, deciding_base
from app.kinship.family import Family
from app.kinship.lineage_chance import with_chance
from app.kinship.lineage_comparer import LineageComparer, require_time
from app.kinship.lineage_summary import summary_of
from app.kinship.lines.beside import clauses_of_lines, with_lines
from app.kinship.lines.judge import LineJudge
from app.kinship.measurements import Measurements, kin_of, link_of
from app.kinship.neighborhood import Neighborhood, scan_neighborhood
from app.kinship.pair_backgrounds import PairBackgrounds
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.index.registry import IndexRegistry
from app.models.spaces.records import SpaceRecord
from app.search.comparer import Comparer
from app.search.constants import LATE, Constants, SpaceConstants, tensors_in_words
from app.search.service import SearchService
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import get_tenant
from modelkin.core.kinship.lineage import (
    MIN_BACKGROUND_MODELS,
    Judgement,
    LineageVerdict,
    is_between,
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
        lines: LineJudge,
    ) -> None:
        self._constants = constants
        self._lines = lines
        self._reader = reader
        self._comparer = LineageComparer(comparer, reader)
        self._judge = BaseJudge(reader, self._comparer, base_revisions)
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
        model = subject.model
        constants = self._find_constants(session, space, subject)
        near = self._search.neighbors(session, space, subject, k=_MAX_INSPECTED)
        require_time(deadline)
        tenant = get_tenant(session, space.tenant_id)
        beyond = partial(self._lines.declared_bases, session, tenant)
        family = Family.of(session, space, name, model.bases, [item.model for item in near], beyond)
        neighborhood = scan_neighborhood(self._indexes, session, space, subject, constants)
        background = _background(session, space, neighborhood, family)
        pairs = PairBackgrounds(self._reader, session, space, neighborhood)
        bases = self._judge.judge(
            session, space, model, family, near.items, background, pairs, deadline
        )
        lines = self._lines.of(session, tenant, name, model.bases, deadline)
        require_time(deadline)
        is_differences = space.importance.kind == "delta"
        if is_differences:
            bases = [_of_differences(space, model, base) for base in bases]
        else:
            bases = [replace(base, judgement=_judgement_outside(base, constants)) for base in bases]
        bases = [base.beside(lines) for base in bases]
        decided = deciding_base(bases)
        measured, judgement = decided.measured, decided.judgement
        declared = measured.declared
        verdict = lineage_verdict(
            judgement, declared=declared is not None, circular=family.leads_back
        )
        rival = _rival(measured, judgement)
        reason = None if judgement is None or verdict == "cycle" else judgement.reason
        likely = None
        if reason == "rival" and rival is not None:
            likely = rival.model
        elif not is_differences:
            likely = _likely_base(session, space, family, measured, neighborhood, verdict)
        usual = measured.background
        lineage = Lineage(
            model=name,
            verdict=verdict,
            reason=reason,
            summary="",
            declared_base=declared,
            declared_bases=tuple(each.shown for each in bases if each.measured.declared),
            base_relation=model.base_relation,
            likely_base=likely,
            base=_kin(measured.base, measured, family),
            base_revision=decided.revision,
            rival=_kin(rival, measured, family),
            kin=tuple(kin_of(item, measured, family) for item in near[:_MAX_RETURNED]),
            usual=SimilarityBaseline(usual.mean, usual.deviation, usual.models),
            limit=usual.limit,
            chain=tuple(self._links(session, space, tenant, family, bases, deadline)),
            cycle=family.cycle,
            note=_NOTES.get(space.importance.kind, space.note),
            constant_tensors=constants.names,
        )
        lineage = with_chance(self._comparer, session, space, model, lineage, near.items, bases)
        lineage = with_lines(lineage, lines, decided.lines)
        sizes = _of_two_sizes(session, space, model.support_size, declared)
        if is_differences or (measured.base is not None and measured.base.covered is not None):
            sizes = None  # of a part K is smaller by itself
        said = [decided.note, sizes, _NOTES.get(space.importance.kind)]
        said += [_over_a_part(measured), _over_common(measured, rival)]
        said.append(_left_out(constants, unseen=_is_unseen(decided, constants)))
        said.append(LATE if constants.late else None)
        said += clauses_of_lines(lineage, lines, decided.lines)
        return summary_of(lineage, said, of_data=space.importance.kind in _OF_DATA)

    def _find_constants(self, session: Reader, space: SpaceRecord, subject: Subject) -> Constants:
        """The tensors that are left out; the model and its declared bases may show them alone."""
        declared = () if subject.model is None else subject.model.bases
        stored = [found.name for found in candidates_by_name(session, space, declared)]
        bases = (self._reader.stored_subject(session, space, name) for name in stored)
        return self._constants.of(session, space, subject, *bases)

    def _links(
        self,
        session: Reader,
        space: SpaceRecord,
        tenant: Tenant,
        family: Family,
        bases: Sequence[JudgedBase],
        deadline: Deadline,
    ) -> list[LineageLink]:
        """Return the declared bases, each with its similarity to the model that declares it.

        Where one of the two is not in the space, it has the lines in common, if both have
        fingerprints.

        Args:
            bases: the declared bases of the model itself, measured already.
            deadline: the time after which the lineage is refused.
        """
        links = []
        first = {each.measured.declared: each.measured.base for each in bases}
        for model, base in family.chain:
            require_time(deadline)
            found = first.get(base)
            if model != family.name and candidates_by_name(session, space, [model]):
                subject = self._reader.stored_subject(session, space, model)
                found = self._comparer.compare(session, space, subject, [base]).get(base)
            elif model != family.name:
                found = None
            links.append(link_of(model, base, found))
            if found is None and model != base:
                shared = self._lines.share(session, tenant, model, base) or (None, None)
                links[-1] = replace(links[-1], share_of_lines=shared[0], log10_p=shared[1])
        return links


def _is_unseen(base: JudgedBase, constants: Constants) -> bool:
    """Whether a base may share constants alone with the model, as far as can be compared."""
    found = base.measured.base
    return bool(constants) and found is not None and found.kappa is None


def _judgement_outside(base: JudgedBase, constants: Constants) -> Judgement | None:
    """The judgement of a base; it stays open where constants may be all that the two share."""
    if base.judgement is None:
        return None
    early = constants.late and base.judgement.verdict == "consistent"
    if early or _is_unseen(base, constants):
        return Judgement("inconclusive", "unclear")
    return base.judgement


def _over_a_part(measured: Measurements) -> str | None:
    """The clause for a model and a base that do not have all parameters of the space."""
    share = None if measured.base is None else measured.base.covered
    if share is None:
        return None
    return f"the two are compared over the {share:.1%} of the space's parameters that both have"


def _over_common(measured: Measurements, rival: Neighbor | None) -> str | None:
    """The clause for a rival that decided over what it, the model and the base all have."""
    found = None if rival is None else measured.over_common.get(rival.model)
    if found is None or found.base is None:
        return None
    return (
        f"over the parameters that all three have, S is {found.to_model.similarity:.3f} to the "
        f"other model and {found.base.similarity:.3f} to the base"
    )


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
    base = [each.id for each in candidates_by_name(session, space, family.declared)]
    return neighborhood.background(unrelated=True, without=base), False


def _of_differences(space: SpaceRecord, model: ModelRecord, base: JudgedBase) -> JudgedBase:
    """A declared base that a space holds differences from, so that it need not be in the space."""
    if base.judgement is not None or base.measured.declared is None:
        return base
    stated = (space.importance.base or "").rpartition("@")[0]
    taken = str(hub_of(model).get("base")).rpartition("@")[0] or hub_of(model).get("base")
    if base.measured.declared not in {stated, taken}:
        return base
    return replace(base, judgement=Judgement("inconclusive", "differences"))


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
    open_between = measured.base is not None and is_between(measured.estimate(measured.base))
    if verdict == "consistent" or (verdict == "inconclusive" and not open_between):
        return None
    likely = measured.standing_out(measured.background, family.bases)
    if likely is not None or verdict != "mismatch":
        return likely
    # The base is contradicted, so those that declare it are strangers too.
    made_from_it = family.derivatives(session, space)
    everyone = neighborhood.background(unrelated=True, without=made_from_it)
    return measured.standing_out(everyone, family.bases)
