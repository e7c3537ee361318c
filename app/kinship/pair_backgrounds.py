"""``PairBackgrounds``: what a model and another one have in common with the rest of their space."""

from __future__ import annotations

from dataclasses import replace

from app.infra.db.database import Reader
from app.kinship.neighborhood import Neighborhood
from app.models.catalog.reader import ModelReader
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from modelkin.core.similarity.background import Background

__all__ = ["PairBackgrounds"]


class PairBackgrounds:
    """The backgrounds of a model together with others, so that both sides of a pair say the same.

    Each is over all models but one of the two, whatever is declared.

    Args:
        reader: reads signatures.
        neighborhood: the model among those of its space.
    """

    def __init__(
        self, reader: ModelReader, session: Reader, space: SpaceRecord, neighborhood: Neighborhood
    ) -> None:
        self._reader = reader
        self._session = session
        self._space = space
        # What lies in constants is taken alike for both, whichever is asked for.
        self._own = replace(neighborhood, share=neighborhood.constants.share)
        self._known: dict[str, Background | None] = {}

    def of(self, name: str) -> Background | None:
        """The background of the two that has the higher limit; None for a model that has gone."""
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Background | None:
        found = candidates_by_name(self._session, self._space, [name])
        values = self._reader.values(self._session, self._space, [each.id for each in found])
        if not values:
            return None
        [(other, theirs)] = values.items()
        sides = self._own, replace(self._own, values=theirs, own=other)
        return max((side.background(unrelated=True) for side in sides), key=_strictness)


def _strictness(background: Background) -> tuple[float, float]:
    return background.limit, background.mean
