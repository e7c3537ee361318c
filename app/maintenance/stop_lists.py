"""Stop-lists: the indices that are everybody's in a space, found by counting, and left out of what
its buckets are made of.

This module decides what is common, and when a space goes with or without; ``rebanding`` brings a
list into force, ``bands`` applies it.
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
from app.maintenance.recall import Pairs
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

_COUNTED = 1_000
"""Supports that are counted; with so many a share of .5 is right within .016."""
_ASKED = 32
"""Models whose pairs with others tell the recall."""
_SWEPT_AT_ONCE = 500


class StopListService:
    """The use cases of stop-lists.

    Args:
        database: the truth.
        library: reads supports.
    """

    def __init__(self, database: Database, library: ModelReader) -> None:
        self._database = database
        self._library = library

    def make(
        self, space: SpaceRecord, *, share: float = DEFAULT_SHARE, progress: Progress | None = None
    ) -> StopList | None:
        """Find the indices that so large a share of the supports hold, and two at least, and put
        them in force.

        All supports are counted up to 1,000, of more a seeded sample. What was in force before is
        so until the end, whatever happens.

        Args:
            space: whose supports are counted.
            share: above 0, up to 1.
            progress: told again and again.

        Returns:
            What was made; None where no index is so common, and the space goes without.

        Raises:
            InvalidParameter: the share is out of its range.
            SupportMissing: the space holds no support.
            SpaceNotFound: the space was deleted.
            Conflict: another one was begun meanwhile, or the stop-list dropped.
            Unavailable: the space changes faster than its models are signed.
        """
        if not 0.0 < share <= 1.0:
            raise InvalidParameter(f"share must be above 0, up to 1, not {share}", field="share")
        progress = progress or _silent
        with self._database.writing() as session:
            version = stop_list_repository.begin_version(session, space)
        with self._database.reading() as session:
            ids = stop_list_repository.support_ids(session, space)
        random = np.random.default_rng(version)
        counted = self._open(space, _some(ids, _COUNTED, random))
        common = _common(counted, share, progress)
        if common is None:
            with self._database.writing() as session:
                self._retire(session, space, version)
            self._forget_older(space, version)
            return None
        with self._database.reading() as session:
            asked = self._library.values(session, space, _some(ids, _ASKED, random))
        pairs = Pairs(asked, version)
        rebanding = StopListRollout(self._database, self._library, space, version, common, progress)
        rebanding.sign_all(pairs)
        made = StopList(
            version=version,
            size=common.k,
            share=share,
            models=len(counted),
            computed_at=datetime.now(UTC),
            recall=rebanding.measure(pairs.drawn()),
        )
        rebanding.finish(made)
        self._forget_older(space, version)
        return made

    def drop(self, space: SpaceRecord) -> StopList | None:
        """Go without a stop-list; answers the one that was in force. One that is being made does
        not come to be.

        Raises:
            SpaceNotFound: the space was deleted.
        """
        with self._database.writing() as session:
            version = stop_list_repository.begin_version(session, space)
            dropped = self._retire(session, space, version)
        self._forget_older(space, version)
        return dropped

    def _open(self, space: SpaceRecord, ids: Sequence[int]) -> list[PackedSupport]:
        """The supports of some models, as far as they can be read."""
        with self._database.reading() as session:
            records = models.models_by_id(session, ids)
        opened = [self._packed(space, records[i]) for i in ids if i in records]
        packed = [support for support in opened if support is not None]
        if not packed:
            raise SupportMissing(
                f"space {space.name!r} holds no support, and a stop-list is counted over supports: "
                f"put some first"
            )
        return packed

    def _packed(self, space: SpaceRecord, model: ModelRecord) -> PackedSupport | None:
        try:
            return self._library.packed(space, model)
        except Unavailable as error:  # one damaged file spoils no count of the others
            log.error("%s", error)
            return None

    def _retire(self, session: Writer, space: SpaceRecord, version: int) -> StopList | None:
        """Go without what is in force, unless another version was begun; answers it."""
        locked = spaces.lock_space(session, space)
        stop_list_repository.require_latest(session, locked, version)
        if locked.stop_list is not None:
            stop_list_repository.deactivate(session, locked)
        return locked.stop_list

    def _forget_older(self, space: SpaceRecord, version: int) -> None:
        """Forget the band values that older versions left, a few models at a time.

        Where another version was begun meanwhile, that one will.
        """
        since = 0
        with suppress(Conflict, SpaceNotFound):
            while version > 1:
                with self._database.writing() as session:
                    stop_list_repository.require_latest(session, space, version)
                    some = stop_list_repository.changed_after(session, space, since, _SWEPT_AT_ONCE)
                    if not some:
                        return
                    ids = [model_id for model_id, _ in some]
                    stop_list_repository.delete_band_values(session, ids, before=version)
                since = some[-1][1]


def _common(supports: Sequence[PackedSupport], share: float, progress: Progress) -> Support | None:
    """What so large a share of the supports hold; None where that is nothing."""
    # A product like .7 * 10 may be a little above what it should be.
    at_least = max(2, math.ceil(share * len(supports) - 1e-9))
    indices = common_indices(
        supports, at_least, lambda done, m: progress(done, m, "counting indices")
    )
    return Support(indices, supports[0].num_parameters) if indices.size else None


def _some(ids: Sequence[int], most: int, random: np.random.Generator) -> list[int]:
    """All of the ids or, of more, so many that are drawn; ascending.

    Places are drawn, not ids: these tell of other tenants.
    """
    if len(ids) <= most:
        return list(ids)
    return [ids[place] for place in np.sort(random.choice(len(ids), most, replace=False))]


def _silent(done: int, total: int, stage: str) -> None:
    """Nobody asked."""
