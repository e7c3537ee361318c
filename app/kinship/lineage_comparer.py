"""The comparisons that a lineage needs, and their deadline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.infra.errors import Unavailable
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.layouts import find_layout
from app.search.comparer import Comparer
from modelkin.core.kinship.lineage import Estimate, Rival
from modelkin.core.kinship.nearness import Nearness
from modelkin.core.similarity.outside import overlap_outside
from modelkin.types.search import Neighbor

__all__ = ["LineageComparer", "require_time"]


class LineageComparer:
    """Compares a subject with models by name.

    Args:
        reader: reads supports.
    """

    def __init__(self, comparer: Comparer, reader: ModelReader) -> None:
        self._comparer = comparer
        self._reader = reader

    def compare(
        self, session: Reader, space: SpaceRecord, subject: Subject, others: Sequence[str]
    ) -> dict[str, Neighbor]:
        """The similarity of other models to a subject, as sharp as possible, by name."""
        if not others:
            return {}
        query = self._comparer.query(session, space, subject)
        candidates = candidates_by_name(session, space, others)
        session.release()
        found, _ = self._comparer.compare(query, candidates)
        found = self._comparer.with_chance(session, space, subject, found)
        return {item.model: item for item in found}

    def log10_ps(
        self, session: Reader, space: SpaceRecord, size: int, items: Iterable[Neighbor]
    ) -> dict[str, float]:
        """The decimal logarithm of the P of so much between unrelated models, by name.

        Args:
            size: K of the model that the items were compared with.
            items: models; those without a kappa have no P.
        """
        known = {item.model: item for item in items if item.kappa is not None}
        found = candidates_by_name(session, space, list(known)) if known else []
        sizes = {candidate.name: candidate.support_size for candidate in found}
        near = {
            name: Nearness.of(
                item.similarity,
                item.standard_error,
                item.expected,
                (size, sizes[name]),
                space.num_parameters,
                shared=item.shared_indices,
            )
            for name, item in known.items()
            if name in sizes
        }
        return {name: each.log10_p for name, each in near.items() if each.log10_p is not None}

    def rivals_over_common(
        self,
        session: Reader,
        space: SpaceRecord,
        model: Subject,
        base: Subject,
        compared: Sequence[Mapping[str, Neighbor]],
    ) -> dict[str, Rival]:
        """The rivals of a base, over what they, the model and the base all have.

        Else a rival that lacks what a model has changed most would seem nearer than the base.

        Args:
            compared: the similarities of the same rivals to the model, and to the base.

        Returns:
            By name; without the rivals for which that is all, and those without a support.
        """
        layout = find_layout(session, space)
        if model.packed is None or base.packed is None or layout is None:
            return {}
        parts = model.packed.gaps or base.packed.gaps
        names = [n for n in compared[0] if parts or any(each[n].covered for each in compared)]
        if not names:
            return {}
        constants = self._comparer.constants(session, space, model).gaps
        candidates, found = candidates_by_name(session, space, names), dict[str, Rival]()
        session.release()
        for candidate in candidates:
            try:
                packed = self._reader.find_packed(space, candidate)
            except Unavailable:  # it is compared as it was
                continue
            if packed is None or packed.gaps == model.packed.gaps == base.packed.gaps:
                continue
            gaps = constants | model.packed.gaps | base.packed.gaps | packed.gaps
            pairs = (packed, model.packed), (packed, base.packed), (base.packed, model.packed)
            overlaps = [overlap_outside(one, other, gaps, layout) for one, other in pairs]
            found[candidate.name] = Rival(
                *(Estimate(each.similarity, 0.0, each.kappa) for each in overlaps)
            )
        return found


def require_time(deadline: Deadline) -> None:
    """Refuse to go on once the deadline of a lineage is over, or its client has gone."""
    deadline.require("this lineage", "ask for the model's neighbors, or for overlap with its base")
