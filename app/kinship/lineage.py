"""Lineage: the declared base of a model, beside the measured similarities.

:mod:`modelkin.core.kinship.lineage` has the rules. This module collects their inputs: the declared
family, the nearest models and their relations, and the background of all other models;
:mod:`app.kinship.lineage_evidence` draws the conclusions. In a space of weights kappa is an input,
too. Lineage cannot be read in a space of differences: its answers say
so, and contradict nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.kinship.base_revisions import BaseRevisions
from app.kinship.declared_bases import BaseJudge
from app.kinship.family import Family
from app.kinship.lineage_chance import with_chance
from app.kinship.lineage_comparer import LineageComparer, require_time
from app.kinship.lineage_evidence import OF_DATA, LineageEvidence, settled
from app.kinship.lineage_summary import summary_of
from app.kinship.lines.beside import clauses_of_lines, with_lines
from app.kinship.lines.judge import LineJudge
from app.kinship.measurements import link_of
from app.kinship.neighborhood import Neighborhood, scan_neighborhood
from app.kinship.pair_backgrounds import PairBackgrounds
from app.kinship.repository import names_stored
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.index.registry import IndexRegistry
from app.models.spaces.records import SpaceRecord
from app.search.comparer import Comparer
from app.search.constants import Constants, SpaceConstants
from app.search.service import SearchService
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import get_tenant
from modelkin.core.kinship.lineage import MIN_BACKGROUND_MODELS
from modelkin.core.similarity.background import Background
from modelkin.types.lineages import Lineage, LineageLink

__all__ = ["LineageService"]

_MAX_INSPECTED, _MAX_RETURNED = 25, 10
"""Nearest models that are compared, since some may be relatives, and those that are returned."""


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
        tenant = get_tenant(session, space.tenant_id)
        evidence = self._measure(session, space, tenant, name, deadline)
        chain = self._links(session, tenant, evidence, deadline)
        lines, decided = evidence.lines, evidence.decided.lines
        lineage = evidence.lineage(session, chain, _MAX_RETURNED)
        lineage = with_chance(
            self._comparer, session, space, evidence.model, lineage, evidence.near, evidence.bases
        )
        lineage = with_lines(
            lineage, lines, decided, is_root=evidence.is_root, roots=evidence.roots(session)
        )
        said = [*evidence.caveats(session), *clauses_of_lines(lineage, lines, decided)]
        return summary_of(
            lineage, said, of_data=space.importance.kind in OF_DATA, is_root=evidence.is_root
        )

    def _measure(
        self, session: Reader, space: SpaceRecord, tenant: Tenant, name: str, deadline: Deadline
    ) -> LineageEvidence:
        """Measure all that a lineage is made from."""
        subject = self._reader.stored_subject(session, space, name)
        assert subject.model is not None
        model = subject.model
        constants = self._find_constants(session, space, subject)
        near = self._search.neighbors(session, space, subject, k=_MAX_INSPECTED)
        require_time(deadline)
        beyond = partial(self._lines.declared_bases, session, tenant)
        family = Family.of(session, space, name, model.bases, [item.model for item in near], beyond)
        neighborhood = scan_neighborhood(self._indexes, session, space, subject, constants)
        background = _background(session, space, neighborhood, family)
        pairs = PairBackgrounds(self._reader, session, space, neighborhood)
        judged = self._judge.judge(
            session, space, model, family, near.items, background, pairs, deadline
        )
        lines = self._lines.of(session, tenant, name, model.bases, deadline)
        require_time(deadline)
        elsewhere = self._stored_elsewhere(session, space, tenant, model.bases)
        bases = [settled(each, space, model, constants, lines, elsewhere) for each in judged]
        return LineageEvidence(
            space, model, constants, family, neighborhood, near.items, bases, lines
        )

    def _stored_elsewhere(
        self, session: Reader, space: SpaceRecord, tenant: Tenant, bases: Sequence[str]
    ) -> set[str]:
        """The bases of a difference that are stored at all; of other models nobody asks."""
        if space.importance.kind != "delta" or not bases:
            return set()
        found = names_stored(session, tenant.id, bases)
        return found | self._lines.declared_bases(session, tenant, bases).keys()

    def _find_constants(self, session: Reader, space: SpaceRecord, subject: Subject) -> Constants:
        """The tensors that are left out; the model and its declared bases may show them alone."""
        declared = () if subject.model is None else subject.model.bases
        stored = [found.name for found in candidates_by_name(session, space, declared)]
        bases = (self._reader.stored_subject(session, space, name) for name in stored)
        return self._constants.of(session, space, subject, *bases)

    def _links(
        self, session: Reader, tenant: Tenant, evidence: LineageEvidence, deadline: Deadline
    ) -> list[LineageLink]:
        """Return the declared bases, each with its similarity to the model that declares it.

        Where one of the two is not in the space, it has the lines in common, if both have
        fingerprints.
        """
        space, family, links = evidence.space, evidence.family, list[LineageLink]()
        first = {each.measured.declared: each.measured.base for each in evidence.bases}
        for model, base in family.chain:
            require_time(deadline)
            found = first.get(base)
            if model != family.name and candidates_by_name(session, space, [model]):
                subject = self._reader.stored_subject(session, space, model)
                found = self._comparer.compare(session, space, subject, [base]).get(base)
            elif model != family.name:
                found = None
            links.append(link_of(model, base, found))
            if found is None:
                shared = self._lines.share(session, tenant, model, base, evidence.lines)
                share, log10_p = shared or (None, None)
                links[-1] = replace(links[-1], share_of_lines=share, log10_p=log10_p)
        return links


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
