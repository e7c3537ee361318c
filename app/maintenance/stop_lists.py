"""Stop-lists: the common indices of a space, which its buckets ignore.

This module counts the indices, decides which are common, and makes or drops lists.
:mod:`app.maintenance.stop_list_rollout` activates a list, :mod:`app.index.banding` applies it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import numpy as np

from app.catalog.reader import ModelReader
from app.catalog.records import ModelRecord
from app.catalog.repositories import models
from app.errors import Conflict, SpaceNotFound, SupportMissing, Unavailable
from app.index import stop_list_repository
from app.infra.db.database import Database, Writer
from app.maintenance.recall import PairSampler
from app.maintenance.stop_list_rollout import Progress, StopListRollout
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord, StopList
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.common_indices import common_indices
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter

__all__ = ["DEFAULT_SHARE", "Progress", "StopListService"]

log = logging.getLogger(__name__)

DEFAULT_SHARE = 0.5

_MAX_COUNTED_SUPPORTS = 1_000
"""Supports that are counted; with so many a share of .5 is right within .016."""
_FETCH_S = 600.0
"""Seconds for the supports that this machine lacks, side by side."""
_RECALL_QUERIES = 32
"""Models whose pairs with others measure the recall."""
_DELETE_BATCH_SIZE = 500


class StopListService:
    """The use cases of stop-lists.

    Args:
        database: read from and written to.
        reader: reads supports.
    """

    def __init__(self, database: Database, reader: ModelReader) -> None:
        self._database = database
        self._reader = reader

    def make(
        self, space: SpaceRecord, *, share: float = DEFAULT_SHARE, progress: Progress | None = None
    ) -> StopList | None:
        """Make the list of the indices that a share of the supports hold, and activate it.

        An index is common if at least two supports, and at least that share of them, hold it. Up to
        1,000 supports all are counted; of more, a seeded sample. The active list stays in force
        until the new one replaces it, whatever happens.

        Args:
            space: whose supports are counted.
            share: above 0, up to 1.
            progress: called at each stage.

        Returns:
            The new list; None if no index is so common, and the space now has no list.

        Raises:
            InvalidParameter: the share is out of its range.
            SupportMissing: the space holds no support.
            SpaceNotFound: the space was deleted.
            Conflict: another list was begun meanwhile, or the stop-list was dropped.
            Unavailable: the space changes faster than its models are signed.
        """
        if not 0.0 < share <= 1.0:
            raise InvalidParameter(f"share must be above 0, up to 1, not {share}", field="share")
        progress = progress or _no_progress
        with self._database.writing() as session:
            version = stop_list_repository.begin_version(session, space)
        with self._database.reading() as session:
            ids = stop_list_repository.support_ids(session, space)
        random = np.random.default_rng(version)
        counted = self._open(space, _sample(ids, _MAX_COUNTED_SUPPORTS, random))
        common = _common(counted, share, progress)
        if common is None:
            with self._database.writing() as session:
                self._deactivate(session, space, version)
            self._delete_older(space, version)
            return None
        with self._database.reading() as session:
            queries = self._reader.values(session, space, _sample(ids, _RECALL_QUERIES, random))
        pairs = PairSampler(queries, version)
        rollout = StopListRollout(self._database, self._reader, space, version, common, progress)
        rollout.sign_all(pairs)
        made = StopList(
            version=version,
            size=common.k,
            share=share,
            models=len(counted),
            computed_at=datetime.now(UTC),
            recall=rollout.measure(pairs.sampled()),
        )
        rollout.finish(made)
        self._delete_older(space, version)
        return made

    def drop(self, space: SpaceRecord) -> StopList | None:
        """Deactivate the stop-list, and return it; a list that is being made is given up.

        Raises:
            SpaceNotFound: the space was deleted.
        """
        with self._database.writing() as session:
            version = stop_list_repository.begin_version(session, space)
            dropped = self._deactivate(session, space, version)
        self._delete_older(space, version)
        return dropped

    def _open(self, space: SpaceRecord, ids: Sequence[int]) -> list[PackedSupport]:
        """The supports of some models, without those that cannot be read."""
        with self._database.reading() as session:
            records = models.models_by_id(session, ids)
        self._reader.fetch(records.values(), _FETCH_S)
        opened = [self._packed(space, records[i]) for i in ids if i in records]
        packed = [support for support in opened if support is not None]
        if not packed:
            raise SupportMissing(
                f"space {space.name!r} holds no support, and a stop-list is counted over supports: "
                f"put some supports first"
            )
        return packed

    def _packed(self, space: SpaceRecord, model: ModelRecord) -> PackedSupport | None:
        try:
            return self._reader.packed(space, model)
        except Unavailable as error:  # one damaged file spoils no count of the others
            log.error("%s", error)
            return None

    def _deactivate(self, session: Writer, space: SpaceRecord, version: int) -> StopList | None:
        """Deactivate the list in force, and return it, unless another version was begun."""
        locked = spaces.lock_space(session, space)
        stop_list_repository.require_latest(session, locked, version)
        if locked.stop_list is not None:
            stop_list_repository.deactivate(session, locked)
        return locked.stop_list

    def _delete_older(self, space: SpaceRecord, version: int) -> None:
        """Delete the band values of older versions, a few models at a time.

        If another version was begun meanwhile, its own rollout deletes them.
        """
        since = 0
        with suppress(Conflict, SpaceNotFound):
            while version > 1:
                with self._database.writing() as session:
                    stop_list_repository.require_latest(session, space, version)
                    some = stop_list_repository.changed_after(
                        session, space, since, _DELETE_BATCH_SIZE
                    )
                    if not some:
                        return
                    ids = [model_id for model_id, _ in some]
                    stop_list_repository.delete_band_values(session, ids, before=version)
                since = some[-1][1]


def _common(supports: Sequence[PackedSupport], share: float, progress: Progress) -> Support | None:
    """The indices that this share of the supports hold; None if there are none."""
    # A product like .7 * 10 may be a little above the exact value.
    at_least = max(2, math.ceil(share * len(supports) - 1e-9))
    indices = common_indices(
        supports, at_least, lambda done, m: progress(done, m, "counting indices")
    )
    return Support.trusted(indices, supports[0].num_parameters) if indices.size else None


def _sample(ids: Sequence[int], most: int, random: np.random.Generator) -> list[int]:
    """All of the ids, or a random sample of ``most``; ascending.

    Positions are drawn, not ids, because ids depend on other tenants.
    """
    if len(ids) <= most:
        return list(ids)
    return [ids[place] for place in np.sort(random.choice(len(ids), most, replace=False))]


def _no_progress(done: int, total: int, stage: str) -> None:
    """Ignore progress."""
