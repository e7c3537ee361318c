"""Donors by their Shapley values in the game of the nearest neighbours, where models carry a label
or a metric among their attributes.

``core.shapley`` has the values; here it is decided who plays, and how near each is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.catalog.repositories.candidates import candidates_by_id
from app.kinship.donors.request import Choice, DonorRequest, Found, Target
from app.kinship.repository import Labelled, labelled_by_id
from app.search.comparer import Comparer
from app.spaces.records import SpaceRecord
from modelkin.core.kinship.shapley import knn_shapley
from modelkin.errors import InvalidParameter
from modelkin.types.kinship import DonorExplanation
from modelkin.types.search import Neighbor

__all__ = ["ShapleyGame"]

Ids = npt.NDArray[np.int64]

_PLAYERS = 1000
"""Models in a game: what those farther away add is below a thousandth of a donor's worth."""
_LABELLED = 100
"""Labelled models that are looked for, from the nearest on, before the game begins."""
_SHARP = 40
"""Models that are compared with the target as sharply as can be, at least."""
_NEIGHBORS = 5
_ROUNDING = 1e-12
"""A value that is 0 but for rounding: whoever is worth nothing or less is no donor."""


class ShapleyGame:
    """The method ``knn_shapley``."""

    def __init__(self, comparer: Comparer) -> None:
        self._comparer = comparer

    def play(self, target: Target, ask: DonorRequest) -> Found:
        """Jia et al. 2019 with S in the neighbour stage, among the nearest that are labelled."""
        game = _Rules.of(target, ask)
        players, left_out = self._players(target, ask, game)
        if not players.ids.size:
            raise InvalidParameter(game.nobody(target.space), field=game.parameter)
        worths = np.array([game.worth(players.labelled[i].value) for i in players.ids.tolist()])
        similarity = players.similarity
        first = knn_shapley(worths, game.neighbors)
        # Who is near, and who is worth most as far as signatures tell, is compared as sharply as
        # can be before the game is played for good.
        likely = np.argsort(-first, kind="stable")[: max(_SHARP, 2 * ask.k)]
        sharp = np.union1d(likely, np.arange(min(len(worths), max(_SHARP, 2 * game.neighbors))))
        neighbors, whole = self._compared(target, players.ids[sharp])
        for place, model_id in zip(sharp.tolist(), players.ids[sharp].tolist(), strict=True):
            if model_id in neighbors:
                similarity[place] = neighbors[model_id].similarity
        names = [players.labelled[model_id].name for model_id in players.ids.tolist()]
        order = sorted(range(len(names)), key=lambda i: (-similarity[i], names[i]))
        values = knn_shapley(worths[order], game.neighbors)
        choices = [
            Choice(neighbor, value, game.reason(neighbor, players.labelled[model_id].value, value))
            for model_id, value in zip(players.ids[order].tolist(), values.tolist(), strict=True)
            if (neighbor := neighbors.get(model_id)) is not None
            and value > _ROUNDING
            and neighbor.similarity >= ask.min_similarity
            and neighbor.similarity > 0
        ]
        choices.sort(key=lambda choice: choice.rank)
        return Found(choices[: ask.k], len(names), left_out, whole)

    def _players(self, target: Target, ask: DonorRequest, game: _Rules) -> tuple[_Players, int]:
        """The nearest models that carry what the game is about, and how many near ones do not."""
        total = len(target.around.snapshot) if target.among is None else target.among.size
        wanted = max(_LABELLED, 4 * ask.k, 4 * game.neighbors)
        count = _PLAYERS
        asked = np.empty(0, np.int64)
        carriers: dict[int, Labelled] = {}
        while True:
            ids, similarity = target.around.nearest(count, target.among)
            new = np.setdiff1d(ids, asked).tolist()
            for each in labelled_by_id(target.session, target.space, new, game.attribute):
                carriers[each.id] = each
            found = [carriers[model_id] for model_id in ids.tolist() if model_id in carriers]
            labelled = {
                each.id: each
                for each in found
                if each.name not in ask.exclude and game.takes(each.value)
            }
            if len(labelled) >= wanted or count >= total:
                break
            count, asked = count * 8, np.union1d(asked, ids)
        taken = [place for place, i in enumerate(ids.tolist()) if i in labelled][:_PLAYERS]
        excluded = sum(each.name in ask.exclude for each in found)
        left_out = ids.size - len(labelled) - excluded
        return _Players(ids[taken], similarity[taken], labelled), left_out

    def _compared(self, target: Target, ids: Ids) -> tuple[dict[int, Neighbor], bool]:
        """Some models compared with the target, as sharply as can be, under their ids."""
        asked = self._comparer.query(target.session, target.space, target.subject)
        candidates = candidates_by_id(target.session, target.space, ids.tolist())
        found, whole = self._comparer.compare(asked, candidates)
        id_of = {candidate.name: candidate.id for candidate in candidates}
        return {id_of[neighbor.model]: neighbor for neighbor in found}, whole


@dataclass(frozen=True, slots=True)
class _Players:
    """Labelled models, nearest first, with S as signatures tell it."""

    ids: Ids
    similarity: npt.NDArray[np.float64]
    labelled: Mapping[int, Labelled]


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a donor is worth by itself: whether its label is the target's, or its metric.

    Attributes:
        parameter: ``"label"`` or ``"metric"``, whichever was given.
        attribute: the attribute that it names.
        wanted: the target's label; None where a metric decides.
        neighbors: how many nearest count.
    """

    parameter: str
    attribute: str
    wanted: str | None
    neighbors: int

    @classmethod
    def of(cls, target: Target, ask: DonorRequest) -> _Rules:
        """The game that is asked for.

        Raises:
            InvalidParameter: the target's label is not known.
        """
        neighbors = _NEIGHBORS if ask.neighbors is None else ask.neighbors
        if ask.metric is not None:
            return cls("metric", ask.metric, None, neighbors)
        assert ask.label is not None
        wanted = ask.target_label
        if wanted is None:
            model = target.subject.model
            wanted = None if model is None else _label(model.attributes.get(ask.label))
        if wanted is None:
            raise InvalidParameter(
                f"the target has no label: it carries no attribute {ask.label!r}; set one, or give "
                f"target_label=",
                field="target_label",
            )
        return cls("label", ask.label, wanted, neighbors)

    def takes(self, value: Any) -> bool:
        """Whether a model that carries this value is in the game."""
        return (_metric if self.wanted is None else _label)(value) is not None

    def worth(self, value: Any) -> float:
        """What a model that carries this value is worth by itself."""
        if self.wanted is None:
            metric = _metric(value)
            assert metric is not None
            return metric
        return float(_label(value) == self.wanted)

    def reason(self, neighbor: Neighbor, value: Any, shapley: float) -> DonorExplanation:
        """Why a model that carries this value is a donor."""
        return DonorExplanation(
            "",
            neighbor.shared_indices,
            shapley=shapley,
            worth=self.worth(value),
            label=None if self.wanted is None else _label(value),
        )

    def nobody(self, space: SpaceRecord) -> str:
        """What is missing where nobody can be a donor."""
        kind = "a finite number" if self.wanted is None else "a text, a whole number or a boolean"
        return (
            f"no other model that is asked for in space {space.name!r} carries the attribute "
            f"{self.attribute!r} with {kind}: set it, or name another"
        )


def _label(value: Any) -> str | None:
    """A label as text: 3 and "3" are one label, and lists are none."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int) else None


def _metric(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
