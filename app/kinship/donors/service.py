"""The donor service: a method ranks donors, which then get their weights and reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.kinship.donors.coverage import CoverageSearch
from app.kinship.donors.request import (
    DonorRanking,
    DonorRequest,
    RankedDonor,
    Target,
    check_request,
)
from app.kinship.donors.shapley import ShapleyGame
from app.kinship.donors.unrelated import ChanceFilter
from app.kinship.neighborhood import scan_neighborhood
from app.kinship.unknown_chance import why_no_p
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.repositories import models
from app.models.index.registry import IndexRegistry
from app.models.spaces.records import SpaceRecord
from app.models.subspaces.service import (
    SubspaceService,
    check_compare,
    choose_compare,
    note,
    require_supports,
    subspace_of,
)
from app.search.comparer import Comparer
from app.search.constants import SpaceConstants
from app.search.service import SearchService
from modelkin.core.kinship import donors as mixing
from modelkin.core.similarity.background import Background
from modelkin.core.similarity.tensors import AT_CHANCE
from modelkin.types.kinship import Donor, DonorExplanation, Donors, SimilarityBaseline
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import DonorMethod, DonorWeights

__all__ = ["DonorService"]


class DonorService:
    """The use case that finds models to learn from."""

    def __init__(
        self,
        reader: ModelReader,
        comparer: Comparer,
        search: SearchService,
        indexes: IndexRegistry,
        subspaces: SubspaceService,
        constants: SpaceConstants,
    ) -> None:
        self._constants = constants
        self._chance = ChanceFilter(comparer)
        coverage = CoverageSearch(reader, self._chance)
        self._search = search
        self._indexes = indexes
        self._subspaces = subspaces
        self._methods: Mapping[str, Callable[[Target, DonorRequest], DonorRanking]] = {
            "similarity": self._nearest,
            "idf": coverage.idf,
            "cover": coverage.cover,
            "knn_shapley": ShapleyGame(comparer).play,
        }

    def donors(
        self,
        session: Reader,
        space: SpaceRecord,
        target: Subject,
        request: DonorRequest,
        deadline: Deadline = NEVER,
    ) -> Donors:
        """Return the donors of a target, best first; there may be fewer than requested.

        The target itself and models that share nothing with it are left out. Models that are near
        by chance alone take places that would stay empty, and weigh nothing, unless the request
        includes them. Beyond the deadline the donors are the best of the models compared by then.

        Raises:
            InvalidParameter: parameters do not go together, or no model has the label or metric.
            WrongKind: the method reads supports, and the space holds data subspaces.
            SupportNeeded: the method needs the support of a target that has only a signature.
            ClientLeft: the client has gone.
        """
        check_request(request)
        check_compare(space, request.compare)
        if space.kind == "subspaces":
            return self._of_subspaces(session, space, target, request, deadline)
        constants = self._constants.of(session, space, target)
        neighborhood = scan_neighborhood(self._indexes, session, space, target, constants)
        among = None
        if request.tags:
            among = np.sort(np.array(models.ids_with_tags(session, space, request.tags), np.int64))
        asked = Target(session, space, target, neighborhood, among, deadline)
        found = self._methods[request.method](asked, request)
        deadline.require_client()
        choices = _best_donors(request, self._chance.mark(asked, found.choices))
        background = neighborhood.background()
        weights = _weights(request, choices, background)
        return Donors(
            items=tuple(
                _donor(choice, float(weight), background)
                for choice, weight in zip(choices, weights, strict=True)
            ),
            target=None if target.model is None else target.model.name,
            method=cast(DonorMethod, request.method),
            weights=cast(DonorWeights, request.weighting),
            usual=SimilarityBaseline(background.mean, background.deviation, background.models),
            candidates=found.considered,
            left_out=found.left_out,
            degraded=not found.whole,
            truncated=found.truncated,
            note=_note(
                constants.note(space, estimated=target.packed is None),
                request,
                choices,
                found.considered,
            ),
            constant_tensors=constants.names,
            no_p=why_no_p(space, known=all(choice.log10_p is not None for choice in choices)),
        )

    def _of_subspaces(
        self,
        session: Reader,
        space: SpaceRecord,
        target: Subject,
        request: DonorRequest,
        deadline: Deadline,
    ) -> Donors:
        """The ranking by S of the clients' data, which has no chance to correct for."""
        if request.method != "similarity":
            require_supports(space, f"{request.method} reads supports", "use method=similarity")
        compare = choose_compare(space, subspace_of(target), request.compare)
        found = self._subspaces.similarities(session, space, target, compare)
        deadline.require_client()
        near = self._subspaces.nearest(
            session,
            space,
            found,
            k=request.k + len(request.exclude),
            min_similarity=request.min_similarity,
            tags=request.tags,
        )
        choices = [
            RankedDonor(item, item.similarity, DonorExplanation("", None))
            for item in near.items
            if item.similarity > 0 and item.model not in request.exclude
        ][: request.k]
        similarities = found.similarity
        alike = np.ones(similarities.size, np.int64)
        background = Background.of(similarities, np.zeros(similarities.size), alike)
        weights = _weights(request, choices, background)
        return Donors(
            items=tuple(
                _donor(choice, float(weight), background)
                for choice, weight in zip(choices, weights, strict=True)
            ),
            target=None if target.model is None else target.model.name,
            method="similarity",
            weights=cast(DonorWeights, request.weighting),
            usual=SimilarityBaseline(background.mean, background.deviation, background.models),
            candidates=near.considered,
            left_out=0,
            degraded=False,
            truncated=False,
            note=note(request.compare, compare),
            no_p=why_no_p(space, known=not choices),
        )

    def _nearest(self, target: Target, request: DonorRequest) -> DonorRanking:
        """Section 5 of the paper: the ranking by S."""
        near = self._search.neighbors(
            target.session,
            target.space,
            target.subject,
            k=request.k + len(request.exclude),
            min_similarity=request.min_similarity,
            tags=request.tags,
            deadline=target.deadline,
        )
        choices = [
            RankedDonor(item, item.similarity, DonorExplanation("", item.shared_indices))
            for item in near
            if item.similarity > 0 and item.model not in request.exclude
        ]
        return DonorRanking(
            choices, near.candidates, whole=not near.degraded, truncated=near.truncated
        )


def _best_donors(request: DonorRequest, choices: Sequence[RankedDonor]) -> list[RankedDonor]:
    """The best k in their order; unrelated ones take only the places that the others leave."""
    places = list(range(len(choices)))
    if not request.include_unrelated:
        places.sort(key=lambda place: choices[place].unrelated)
    return [choices[place] for place in sorted(places[: request.k])]


def _weights(
    request: DonorRequest, choices: Sequence[RankedDonor], background: Background
) -> npt.NDArray[np.float64]:
    """The shares of the donors; unrelated ones have none, unless they were asked for."""
    weighed = np.array(
        [request.include_unrelated or not choice.unrelated for choice in choices], np.bool_
    )
    counted = [choice for choice, counts in zip(choices, weighed, strict=True) if counts]
    similarities = [choice.neighbor.similarity for choice in counted]
    weights = np.zeros(len(choices))
    if request.weighting == "zscore":
        weights[weighed] = mixing.zscore_weights(similarities, background.deviation)
    elif request.weighting == "similarity":
        weights[weighed] = mixing.weights(similarities)
    else:
        weights[weighed] = mixing.proportional([choice.score for choice in counted])
    return weights


def _note(
    caveat: str | None, request: DonorRequest, choices: Sequence[RankedDonor], considered: int
) -> str | None:
    """The caveats in words: of the space, and of an answer without a donor to learn from."""
    notes = [] if caveat is None else [caveat]
    if not choices:
        notes.append(
            f"no donor: none of the {considered} models considered shares an index with the target "
            f"and passes the filters"
            if considered
            else "no donor: there is no other model that the request allows"
        )
    elif all(choice.unrelated for choice in choices):
        weighed = (
            "all weigh in because they were asked for"
            if request.include_unrelated
            else ("none has a weight; include_unrelated=true weighs them nevertheless")
        )
        notes.append(
            f"none of these {len(choices)} is related to the target, they are as near as chance "
            f"makes two models ({_floors(choices)}): {weighed}"
        )
    return "; ".join(notes) or None


def _floors(choices: Sequence[RankedDonor]) -> str:
    """Name the floor under which the choices are near by chance: kappa, S, or either."""
    floors = []
    kappas = [choice.neighbor.kappa or 0.0 for choice in choices if choice.log10_p is not None]
    if kappas:
        unsure = ", or not surely above" if max(kappas) >= AT_CHANCE else ""
        floors.append(f"kappa below {AT_CHANCE:g}{unsure}")
    floor = max((choice.floor for choice in choices if choice.floor is not None), default=None)
    if floor is not None:
        floors.append(f"S below {floor:.3g}, which supports of this size have by chance")
    return " or ".join(floors)


def _donor(choice: RankedDonor, weight: float, background: Background) -> Donor:
    neighbor = choice.neighbor
    z_score = background.z_score(neighbor.similarity)
    sentence = _sentence(neighbor, choice.reason, z_score)
    if choice.unrelated:
        sentence += "; unrelated: it is as near as chance makes two models"
    return Donor(
        model=neighbor.model,
        similarity=neighbor.similarity,
        weight=weight,
        estimate=neighbor.estimate,
        standard_error=neighbor.standard_error,
        expected=neighbor.expected,
        kappa=neighbor.kappa,
        unrelated=choice.unrelated,
        log10_p=choice.log10_p,
        covered=neighbor.covered,
        why=replace(choice.reason, sentence=sentence, z_score=z_score),
    )


def _sentence(neighbor: Neighbor, reason: DonorExplanation, z_score: float | None) -> str:
    """The reason in a sentence for people."""
    if reason.shapley is not None:
        what = (
            f"its metric is {reason.worth:g}"
            if reason.label is None
            else f"its label is {reason.label!r}"
            + (", the target's" if reason.worth else ", not the target's")
        )
        return f"{what}; its Shapley value among the nearest is {reason.shapley:.4f}"
    if reason.explained is not None:
        return (
            f"explains {reason.explained:.1%} of the target that no donor before it does, "
            f"{reason.cumulative:.1%} in all"
        )
    if reason.rarity is not None:
        return (
            f"holds {reason.rarity:.1%} of the target weighed by rarity: what they share is "
            f"{reason.rarity_gain:.2f} times as rare as the target's indices are on average"
        )
    beyond = "" if z_score is None else _beyond(z_score)
    if neighbor.shared_indices is not None:
        return f"shares {neighbor.shared_indices:,} indices with the target{beyond}"
    if neighbor.estimate == "exact":
        return f"its data have a similarity of {neighbor.similarity:.3f} to the target's{beyond}"
    return (
        f"shares about {neighbor.similarity:.1%} ± {neighbor.standard_error:.1%} of its indices "
        f"with the target{beyond}"
    )


def _beyond(z_score: float) -> str:
    side = "above" if z_score >= 0 else "below"
    return f", {abs(z_score):.1f} standard deviations {side} the mean of the space"
