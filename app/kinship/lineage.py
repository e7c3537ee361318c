"""Lineage: the declared base of a model, beside the measured similarities.

:mod:`modelkin.core.kinship.lineage` has the rules. This module collects their inputs: the declared
family, the nearest models and how they relate, and the background of all others. In a space of
weights kappa is an input too. Lineage cannot be read in a space of differences: its answers say so,
and contradict nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.catalog.reader import ModelReader
from app.catalog.repositories.candidates import candidates_by_name
from app.deadlines import NEVER, Deadline
from app.index.registry import IndexRegistry
from app.infra.db.database import Reader
from app.kinship.family import Family
from app.kinship.lineage_summary import summary_of
from app.kinship.neighborhood import Neighborhood, scan_neighborhood
from app.search.comparer import Comparer
from app.search.service import SearchService
from app.spaces.records import SpaceRecord
from modelkin.core.kinship.lineage import (
    MIN_BACKGROUND_MODELS,
    SIMILARITY_TOLERANCE,
    Estimate,
    Judgement,
    Rival,
    judge,
    stands_out,
)
from modelkin.core.similarity.background import Background
from modelkin.types.kinship import SimilarityBaseline
from modelkin.types.lineages import Kin, Lineage, LineageLink
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import LineageVerdict

__all__ = ["LineageService"]

_MAX_INSPECTED, _MAX_RETURNED = 25, 10
"""Nearest models that are compared, since some may be relatives, and those that are returned."""
_DIFFERENCES_NOTE = (
    "this space holds differences from a base, which show what was tuned alike; lineage is read in "
    "a space of weights"
)
_OF_DATA: Final = frozenset({"fisher", "grad_moment", "adam"})
"""Kinds of importance that say what the data of a model are like, more than what it is made of."""
_DATA_NOTE = (
    "in this space near models have similar data, whatever they were made from; lineage is read in "
    "a space of weights"
)
_NOTES: Final = {"delta": _DIFFERENCES_NOTE, **dict.fromkeys(_OF_DATA, _DATA_NOTE)}
"""What an answer says of a space, by its kind of importance, where lineages cannot be read."""
_MANY_TIMES: Final = 1.25
"""How many times as large the larger support is of two whose S says little: it is 0.89 at most."""


@dataclass(frozen=True, slots=True)
class _Measurements:
    """The similarities of the models around a model.

    Attributes:
        weights: the space is of weights, so kappa decides first.
        near: the nearest models, the nearest first.
        base: the declared base; None where it is not in the space.
        rivals: those of ``near`` that the model may be made from besides its base.
        to_base: the similarity to the declared base of those rivals that were compared, by name.
        background: of the declared strangers, or of all but the base if these are too few.
        unrelated: whether it is of the strangers.
    """

    weights: bool
    near: Sequence[Neighbor]
    base: Neighbor | None
    rivals: Sequence[Neighbor]
    to_base: Mapping[str, Neighbor]
    background: Background
    unrelated: bool

    def estimate(self, item: Neighbor) -> Estimate:
        """A similarity as the rules take it: with kappa where that decides."""
        kappa = item.kappa if self.weights else None
        return Estimate(item.similarity, item.standard_error, kappa)

    def standing_out(self, background: Background, bases: Mapping[str, str | None]) -> str | None:
        """The nearest rival that stands out from a background, or a base of it that is as near.

        Fine-tunes of one base are about as near to each other as to the base.

        Args:
            background: of unrelated models.
            bases: the declared base of every model that was read.
        """
        out = {
            item.model: item.similarity
            for item in self.rivals
            if stands_out(self.estimate(item), background)
        }
        likely = max(out, key=out.__getitem__, default=None)
        seen: set[str] = set()
        while likely is not None and likely not in seen:
            seen.add(likely)
            base = bases.get(likely)
            if base in out and out[base] >= out[likely] - SIMILARITY_TOLERANCE:
                likely = base
        return likely


class LineageService:
    """The use case that compares a declared base with the measurements."""

    def __init__(
        self,
        reader: ModelReader,
        comparer: Comparer,
        search: SearchService,
        indexes: IndexRegistry,
    ) -> None:
        self._reader = reader
        self._comparer = comparer
        self._search = search
        self._indexes = indexes

    def lineage(
        self, session: Reader, space: SpaceRecord, name: str, deadline: Deadline = NEVER
    ) -> Lineage:
        """The lineage of a stored model.

        Raises:
            ModelNotFound: there is no such model.
            TooMuch, ClientLeft: as the deadline says; a part of the evidence would mislead.
        """
        _require_time(deadline)
        subject = self._reader.stored_subject(session, space, name)
        assert subject.model is not None
        declared = subject.model.base_model
        near = self._search.neighbors(session, space, subject, k=_MAX_INSPECTED)
        _require_time(deadline)
        family = Family.of(session, space, name, declared, [item.model for item in near])
        neighborhood = scan_neighborhood(self._indexes, session, space, subject)
        measured = self._measure(session, space, family, near.items, neighborhood)
        _require_time(deadline)
        is_differences = space.importance.kind == "delta"
        judgement = _judge(measured, family, contradict=not is_differences)
        verdict = _verdict(family, judgement)
        rival = None
        if judgement is not None and judgement.rival is not None:
            rival = measured.rivals[judgement.rival]
        reason = None if judgement is None or verdict == "cycle" else judgement.reason
        likely = None
        if reason == "rival" and rival is not None:
            likely = rival.model
        elif verdict not in {"consistent", "inconclusive"} and not is_differences:
            likely = measured.standing_out(measured.background, family.bases)
            if likely is None and verdict == "mismatch":
                # The base is contradicted, so those that declare it are strangers too.
                made_from_it = family.derivatives(session, space)
                everyone = neighborhood.background(unrelated=True, without=made_from_it)
                likely = measured.standing_out(everyone, family.bases)
        background = measured.background
        lineage = Lineage(
            model=name,
            verdict=verdict,
            reason=reason,
            summary="",
            declared_base=declared,
            likely_base=likely,
            base=None if measured.base is None else _kin(measured.base, measured, family),
            rival=None if rival is None else _kin(rival, measured, family),
            kin=tuple(_kin(item, measured, family) for item in near[:_MAX_RETURNED]),
            usual=SimilarityBaseline(background.mean, background.deviation, background.models),
            limit=background.limit,
            chain=tuple(self._links(session, space, family, measured.base, deadline)),
            cycle=family.cycle,
            note=_NOTES.get(space.importance.kind, space.note),
        )
        sizes = _of_two_sizes(session, space, subject.model.support_size, declared)
        said = [None if is_differences else sizes, _NOTES.get(space.importance.kind)]
        return summary_of(lineage, said, of_data=space.importance.kind in _OF_DATA)

    def _measure(
        self,
        session: Reader,
        space: SpaceRecord,
        family: Family,
        near: Sequence[Neighbor],
        neighborhood: Neighborhood,
    ) -> _Measurements:
        """Compare the model with its base, and its rivals with that."""
        declared, base, to_base = family.declared, None, dict[str, Neighbor]()
        rivals = [item for item in near if family.relation(item.model) in {None, "ancestor"}]
        if declared is not None and declared != family.name and declared in family.bases:
            base = self._compare(session, space, family.name, [declared]).get(declared)
        if base is not None and declared is not None:
            to_base = self._compare(session, space, declared, [item.model for item in rivals])
            rivals = [item for item in rivals if item.model in to_base]
        background, unrelated = _background(session, space, neighborhood, family)
        is_weights = space.importance.kind == "weight"
        return _Measurements(is_weights, near, base, rivals, to_base, background, unrelated)

    def _compare(
        self, session: Reader, space: SpaceRecord, name: str, others: Sequence[str]
    ) -> dict[str, Neighbor]:
        """The similarity of other models to a stored one, as sharp as possible, by name."""
        if not others:
            return {}
        subject = self._reader.stored_subject(session, space, name)
        query = self._comparer.query(session, space, subject)
        candidates = candidates_by_name(session, space, others)
        session.release()
        found, _ = self._comparer.compare(query, candidates)
        found = self._comparer.with_chance(session, space, subject, found)
        return {item.model: item for item in found}

    def _links(
        self,
        session: Reader,
        space: SpaceRecord,
        family: Family,
        first: Neighbor | None,
        deadline: Deadline,
    ) -> list[LineageLink]:
        """The declared bases, each with its similarity to the model that declares it.

        Args:
            first: the declared base of the model itself, which is measured already.
            deadline: of the lineage.
        """
        links = []
        for model, base in family.chain:
            _require_time(deadline)
            found = first
            if model != family.name:
                found = self._compare(session, space, model, [base]).get(base)
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


def _of_two_sizes(
    session: Reader, space: SpaceRecord, size: int, declared: str | None
) -> str | None:
    """What to say where the base's support has another size, which bounds S; None elsewhere."""
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


def _require_time(deadline: Deadline) -> None:
    deadline.require("this lineage", "ask for the model's neighbors, or for overlap with its base")


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


def _judge(measured: _Measurements, family: Family, *, contradict: bool) -> Judgement | None:
    """The judgement of the declared base; None where it cannot be measured.

    Args:
        contradict: whether the space can contradict a base.
    """
    base, to_base = measured.base, measured.to_base
    if base is None:
        return None
    judgement = judge(
        measured.estimate(base),
        [
            Rival(measured.estimate(item), measured.estimate(to_base[item.model]))
            for item in measured.rivals
        ],
        measured.background,
        unrelated=measured.unrelated,
        runner_up=_runner_up(measured, family),
    )
    if judgement.verdict == "mismatch" and not contradict:
        return Judgement("inconclusive", "differences")
    return judgement


def _runner_up(measured: _Measurements, family: Family) -> Estimate | None:
    """The nearest model besides the base and those made from the model.

    Where these are all that is near, it is the base if that is among them, since every other model
    is farther; else the nearest of them.
    """
    relations = [family.relation(item.model) for item in measured.near]
    for wanted in ({None, "ancestor", "sibling"}, {"base"}, {"derivative"}):
        for item, relation in zip(measured.near, relations, strict=True):
            if relation in wanted:
                return measured.estimate(item)
    return None


def _verdict(family: Family, judgement: Judgement | None) -> LineageVerdict:
    if family.declared is None:
        return "undeclared"
    if family.cycle and family.chain[-1][1] == family.name:
        return "cycle"
    return "unknown_base" if judgement is None else judgement.verdict


def _kin(item: Neighbor, measured: _Measurements, family: Family) -> Kin:
    """A model as evidence."""
    to_base = measured.to_base.get(item.model)
    return Kin(
        model=item.model,
        similarity=item.similarity,
        estimate=item.estimate,
        standard_error=item.standard_error,
        z_score=measured.background.z_score(item.similarity),
        stands_out=stands_out(measured.estimate(item), measured.background),
        base_model=family.bases.get(item.model),
        relation=family.relation(item.model),
        to_base=None if to_base is None else to_base.similarity,
        expected=item.expected,
        kappa=item.kappa,
    )
