"""Donors by their Shapley values in the game of the nearest neighbours.

Models take part with a label or a metric among their attributes. This module chooses the players
and measures how near each is; :mod:`modelkin.core.kinship.shapley` computes the values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.kinship.donors.request import DonorRanking, DonorRequest, RankedDonor, Target
from app.kinship.repository import LabelledModel, labelled_models_by_id
from app.models.catalog.repositories.candidates import candidates_by_id
from app.models.spaces.records import SpaceRecord
from app.search.comparer import Comparer
from modelkin.core.kinship.shapley import knn_shapley
from modelkin.errors import InvalidParameter
from modelkin.types.kinship import DonorExplanation
from modelkin.types.search import Neighbor

__all__ = ["ShapleyGame"]

Ids = npt.NDArray[np.int64]

_MAX_PLAYERS = 1000
"""Models in a game: those farther away add less than a thousandth of a donor's worth."""
_MIN_LABELLED = 100
"""Labelled models that the search collects, nearest first, before the game begins."""
_MIN_COMPARISONS = 40
"""Models that are compared with the target as sharply as possible, at least."""
_DEFAULT_NEIGHBORS = 5
_EPSILON = 1e-12
"""Values up to this one count as 0: a model worth nothing or less is not a donor."""


class ShapleyGame:
    """The method ``knn_shapley``."""

    def __init__(self, comparer: Comparer) -> None:
        self._comparer = comparer

    def play(self, target: Target, request: DonorRequest) -> DonorRanking:
        """Jia et al. 2019 with S in the neighbour stage, among the nearest labelled models."""
        game = _Rules.of(target, request)
        players, left_out = self._players(target, request, game)
        if not players.ids.size:
            raise InvalidParameter(game.describe_missing(target.space), field=game.parameter)
        worths = np.array([game.worth(players.labelled[i].value) for i in players.ids.tolist()])
        similarity = players.similarity
        first = knn_shapley(worths, game.neighbors)
        # The nearest players, and those worth most by their signatures, are compared as sharply as
        # possible before the final game.
        likely = np.argsort(-first, kind="stable")[: max(_MIN_COMPARISONS, 2 * request.k)]
        sharp = np.union1d(
            likely, np.arange(min(len(worths), max(_MIN_COMPARISONS, 2 * game.neighbors)))
        )
        neighbors, whole = self._compare_by_id(target, players.ids[sharp])
        for place, model_id in zip(sharp.tolist(), players.ids[sharp].tolist(), strict=True):
            if model_id in neighbors:
                similarity[place] = neighbors[model_id].similarity
        names = [players.labelled[model_id].name for model_id in players.ids.tolist()]
        order = sorted(range(len(names)), key=lambda i: (-similarity[i], names[i]))
        values = knn_shapley(worths[order], game.neighbors)
        choices = [
            RankedDonor(
                neighbor, value, game.reason(neighbor, players.labelled[model_id].value, value)
            )
            for model_id, value in zip(players.ids[order].tolist(), values.tolist(), strict=True)
            if (neighbor := neighbors.get(model_id)) is not None
            and value > _EPSILON
            and neighbor.similarity >= request.min_similarity
            and neighbor.similarity > 0
        ]
        choices.sort(key=lambda choice: choice.rank)
        return DonorRanking(choices, len(names), left_out, whole, target.deadline.passed())

    def _players(self, target: Target, request: DonorRequest, game: _Rules) -> tuple[_Players, int]:
        """The nearest models with the attribute of the game, and how many near ones lack it."""
        total = len(target.neighborhood.snapshot) if target.among is None else target.among.size
        wanted = max(_MIN_LABELLED, 4 * request.k, 4 * game.neighbors)
        count = _MAX_PLAYERS
        searched = np.empty(0, np.int64)
        carriers: dict[int, LabelledModel] = {}
        while True:
            ids, similarity = target.neighborhood.nearest(count, target.among)
            new = np.setdiff1d(ids, searched).tolist()
            for each in labelled_models_by_id(target.session, target.space, new, game.attribute):
                carriers[each.id] = each
            found = [carriers[model_id] for model_id in ids.tolist() if model_id in carriers]
            labelled = {
                each.id: each
                for each in found
                if each.name not in request.exclude and game.takes(each.value)
            }
            if len(labelled) >= wanted or count >= total or target.deadline.passed():
                break
            count, searched = count * 8, np.union1d(searched, ids)
        taken = [place for place, i in enumerate(ids.tolist()) if i in labelled][:_MAX_PLAYERS]
        excluded = sum(each.name in request.exclude for each in found)
        left_out = ids.size - len(labelled) - excluded
        return _Players(ids[taken], similarity[taken], labelled), left_out

    def _compare_by_id(self, target: Target, ids: Ids) -> tuple[dict[int, Neighbor], bool]:
        """Models compared with the target, as sharply as possible, by id."""
        query = self._comparer.query(target.session, target.space, target.subject)
        candidates = candidates_by_id(target.session, target.space, ids.tolist())
        target.session.release()
        found, whole = self._comparer.compare(query, candidates, deadline=target.deadline)
        id_of = {candidate.name: candidate.id for candidate in candidates}
        return {id_of[neighbor.model]: neighbor for neighbor in found}, whole


@dataclass(frozen=True, slots=True)
class _Players:
    """Labelled models, nearest first, with S as their signatures estimate it."""

    ids: Ids
    similarity: npt.NDArray[np.float64]
    labelled: Mapping[int, LabelledModel]


@dataclass(frozen=True, slots=True)
class _Rules:
    """The worth of a single donor: its metric, or whether its label is the target's.

    Attributes:
        parameter: the given parameter, ``"label"`` or ``"metric"``.
        wanted: the target's label; None for a metric.
        neighbors: the number of nearest models that count.
    """

    parameter: str
    attribute: str
    wanted: str | None
    neighbors: int

    @classmethod
    def of(cls, target: Target, request: DonorRequest) -> _Rules:
        """The rules of the requested game.

        Raises:
            InvalidParameter: the target's label is not known.
        """
        neighbors = _DEFAULT_NEIGHBORS if request.neighbors is None else request.neighbors
        if request.metric is not None:
            return cls("metric", request.metric, None, neighbors)
        assert request.label is not None
        wanted = request.target_label
        if wanted is None:
            model = target.subject.model
            wanted = None if model is None else _label(model.attributes.get(request.label))
        if wanted is None:
            raise InvalidParameter(
                f"the target has no label: it carries no attribute {request.label!r}; set one, or "
                f"give target_label=",
                field="target_label",
            )
        return cls("label", request.label, wanted, neighbors)

    def takes(self, value: Any) -> bool:
        """Whether a model that carries this value takes part."""
        return (_metric if self.wanted is None else _label)(value) is not None

    def worth(self, value: Any) -> float:
        """The worth of a single model that carries this value."""
        if self.wanted is None:
            metric = _metric(value)
            assert metric is not None
            return metric
        return float(_label(value) == self.wanted)

    def reason(self, neighbor: Neighbor, value: Any, shapley: float) -> DonorExplanation:
        """The reasons for a donor that carries this value."""
        return DonorExplanation(
            "",
            neighbor.shared_indices,
            shapley=shapley,
            worth=self.worth(value),
            label=None if self.wanted is None else _label(value),
        )

    def describe_missing(self, space: SpaceRecord) -> str:
        """The message for a game without players."""
        kind = "a finite number" if self.wanted is None else "a text, a whole number or a boolean"
        return (
            f"no other eligible model in space {space.name!r} carries the attribute "
            f"{self.attribute!r} with {kind}: set it, or name another"
        )


def _label(value: Any) -> str | None:
    """A label as text: 3 and "3" are one label, and a list is not a label."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int) else None


def _metric(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
