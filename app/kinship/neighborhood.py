"""The neighborhood of a subject: approximate similarities to all models of its space.

One scan of the in-memory index gives the similarities. They show which similarity is usual in the
space, and which models are worth an exact comparison. This module reads no support.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.models.catalog.reader import Subject
from app.models.index import cascade
from app.models.index.change_feed import ChangeFeed
from app.models.index.registry import IndexRegistry
from app.models.index.space_index import Snapshot
from app.models.spaces.records import SpaceRecord
from app.search.constants import NO_CONSTANTS, Constants
from modelkin.core.similarity.background import Background, similarities_of_matches

__all__ = ["Neighborhood", "scan_neighborhood"]

Ids = npt.NDArray[np.int64]

_SEED = 1
"""The seed of all samples, so that every process draws the same one."""


def scan_neighborhood(
    indexes: IndexRegistry,
    session: Reader,
    space: SpaceRecord,
    subject: Subject,
    constants: Constants = NO_CONSTANTS,
) -> Neighborhood:
    """Scan the neighborhood of a subject, as one transaction sees it."""
    feed = ChangeFeed(session, space.id)
    snapshot = indexes.snapshot_at(space.id, space.signature, space.version, feed)
    own = None if subject.model is None else subject.model.id
    share = constants.share_of(subject.packed)
    return Neighborhood(snapshot, subject.values, own, constants, share)


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """A subject among the models of its space.

    Attributes:
        snapshot: the index of the space.
        values: the subject's signature, shape ``(num_perm,)``.
        own: the subject's id, if it is a model of the space.
        constants: the tensors that comparisons leave out.
        share: the share of the subject's indices in them, which signatures do not leave out: every
            model is taken to hold as much.
    """

    snapshot: Snapshot
    values: npt.NDArray[np.unsignedinteger]
    own: int | None
    constants: Constants = NO_CONSTANTS
    share: float = 0.0

    @property
    def models(self) -> int:
        """The number of models besides the subject, at least 1."""
        return max(1, int(np.count_nonzero(self.snapshot.alive)) - (self.own is not None))

    def background(self, *, unrelated: bool = False, without: Collection[int] = ()) -> Background:
        """The usual similarity: the distribution over all models but the subject.

        Args:
            unrelated: whether to take the background of unrelated models, by the median, so that
                kin do not count.
            without: ids of further models to leave out.
        """
        snapshot, num_perm = self.snapshot, self.values.size
        matches = snapshot.counts(self.values)
        counted = snapshot.alive
        if self.own is not None:
            counted = counted & (snapshot.ids != self.own)
        if without:
            counted = counted & ~np.isin(snapshot.ids, [*without])
        models = np.bincount(matches[counted], minlength=num_perm + 1)
        similarities, errors = _similarities(num_perm)
        similarities = cascade.outside(similarities, self.share)
        errors = errors / (1.0 - self.share)
        make: Callable[..., Background] = Background.of_unrelated if unrelated else Background.of
        return make(similarities, errors, models)

    def nearest(self, count: int, among: Ids | None = None) -> tuple[Ids, npt.NDArray[np.float64]]:
        """Return the ids of the nearest models by signature bytes, and estimates of S.

        Args:
            count: the number of models, at least 1; fewer are returned if there are no more.
            among: the models to choose from, ascending ids; all by default.
        """
        found = self.snapshot.candidates(self.values, count + 1, among=among)
        order = np.lexsort((found.ids, -found.matches))
        ids, matches = found.ids[order], found.matches[order]
        others = np.flatnonzero(ids != (-1 if self.own is None else self.own))[:count]
        similarity = cascade.similarity_from_matches(matches[others], self.values.size)
        return ids[others], cascade.outside(similarity, self.share)

    def sample(self, count: int) -> Ids:
        """The ids of ``count`` random models that may have a support, without the subject.

        Their order is random too; every process draws the same, whatever else its database holds.
        """
        snapshot = self.snapshot
        eligible = snapshot.alive & (snapshot.contents != 0)
        if self.own is not None:
            eligible &= snapshot.ids != self.own
        ids = snapshot.ids[eligible]
        taken = np.random.default_rng(_SEED).choice(ids.size, min(count, ids.size), replace=False)
        # Models are drawn by rank, which only the space decides: ids depend on other tenants'
        # writes.
        ranks = np.unique(taken)
        ordered: Ids = np.partition(ids, ranks) if ranks.size else ids
        chosen: Ids = ordered[taken]
        return chosen


@lru_cache(maxsize=16)
def _similarities(num_perm: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """S and its error by how many bytes of two signatures are equal, shape ``(num_perm + 1,)``."""
    return similarities_of_matches(np.arange(num_perm + 1), num_perm)
