"""The rollout of a stop-list: sign all models under it, then switch, while the space changes.

The rollout signs models in the order of their changes, in batches and without the space's lock. A
model that changes meanwhile returns at the end of that order. When few are left, the last are
signed under the lock, and the same transaction activates the list. A failure leaves the space as
it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from app.catalog.reader import ModelReader
from app.catalog.records import ModelRecord
from app.catalog.repositories import models
from app.errors import ModelNotFound, Unavailable
from app.index import stop_list_repository
from app.index.banding import filtered_support, minhash_bytes
from app.infra.db.database import Database
from app.maintenance.recall import PairSampler, recall_curve
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord, StopList
from modelkin.core.similarity.overlap import jaccard, similarity
from modelkin.core.sketching.banding import collision_probability
from modelkin.core.support import Support

__all__ = ["Progress", "StopListRollout"]

log = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
"""A callback: how much is done, of how much, and the stage. Its exceptions end the rollout."""

_BATCH_SIZE = 64
"""Models that are signed and written together."""
_MAX_SIGNED_UNDER_LOCK = 16
"""Models that may be signed under the space's lock; each takes some milliseconds."""
_MAX_PASSES = 4
"""How many times over the models may be signed before the space counts as changing too fast."""
_MIN_SIGNING_LIMIT = 10_000
"""Models that may be signed on top, for a small space that grows."""


class StopListRollout:
    """Brings one stop-list into force.

    Args:
        database: read from and written to.
        reader: reads supports.
        space: that the list is for.
        version: of the list, as it was begun.
        stop_list: the common indices.
        progress: called at each batch.
    """

    def __init__(
        self,
        database: Database,
        reader: ModelReader,
        space: SpaceRecord,
        version: int,
        stop_list: Support,
        progress: Progress,
    ) -> None:
        self._database = database
        self._reader = reader
        self._space = space
        self._version = version
        self._stop_list = stop_list
        self._progress = progress
        self._since = 0
        self._signed = 0

    def sign_all(self, pairs: PairSampler) -> None:
        """Compute the band values of all models, and sample ``pairs`` from them.

        Raises:
            SpaceNotFound: the space was deleted.
            Conflict: another version was begun.
            Unavailable: the space changes faster than it is signed.
        """
        while self._sign_some(pairs) >= _MAX_SIGNED_UNDER_LOCK:
            self._progress(self._signed, max(self._signed, self._space.models), "signing models")

    def measure(self, pairs: Sequence[tuple[int, int]]) -> tuple[float | None, ...]:
        """The recall at each S, from pairs of ids that are grouped by their first."""
        found = []
        for first_id, group in groupby(pairs, itemgetter(0)):
            others = [other for _, other in group]
            with self._database.reading() as session:
                records = models.models_by_id(session, [first_id, *others])
            own = self._read(records.get(first_id))
            for other in others:
                theirs = self._read(records.get(other))
                if own is not None and theirs is not None:
                    found.append(
                        (
                            similarity(own[0], theirs[0]),
                            self._collision_probability(own[1], theirs[1]),
                        )
                    )
            self._progress(len(found), len(pairs), "measuring recall")
        return recall_curve(found)

    def finish(self, made: StopList) -> None:
        """Sign the models that changed meanwhile, the last of them under the lock, and activate.

        Raises:
            SpaceNotFound, Conflict, Unavailable: as :meth:`sign_all`; the list was not activated.
        """
        while not self._switch(made):
            self._sign_some(None)

    def _sign_some(self, pairs: PairSampler | None) -> int:
        """Sign the next models in the order of their changes; return how many there were."""
        self._require_progress()
        with self._database.reading() as session:
            some = stop_list_repository.changed_after(
                session, self._space, self._since, _BATCH_SIZE
            )
            records = models.models_by_id(session, (model_id for model_id, _ in some))
            if pairs is not None:
                whole = [i for i, model in records.items() if model.kind == "support"]
                signatures = self._reader.values(session, self._space, whole)
                if signatures:
                    pairs.add(list(signatures), np.stack(list(signatures.values())))
        values = self._band_values(records.values())
        with self._database.writing() as session:
            stop_list_repository.require_latest(session, self._space, self._version)
            stop_list_repository.put_band_values(session, self._space, self._version, values)
        if some:
            self._since = some[-1][1]
        self._signed += len(some)
        return len(some)

    def _switch(self, made: StopList) -> bool:
        """Activate the list; False if too many models changed since they were signed."""
        with self._database.writing() as session:
            space = spaces.lock_space(session, self._space)
            stop_list_repository.require_latest(session, space, self._version)
            late = stop_list_repository.changed_after(
                session, space, self._since, _MAX_SIGNED_UNDER_LOCK + 1
            )
            if len(late) > _MAX_SIGNED_UNDER_LOCK:
                return False
            records = models.models_by_id(session, (model_id for model_id, _ in late))
            values = self._band_values(records.values())
            stop_list_repository.put_band_values(session, space, self._version, values)
            stop_list_repository.activate(session, space, made, self._stop_list.to_bytes())
        return True

    def _require_progress(self) -> None:
        if self._signed > _MAX_PASSES * self._space.models + _MIN_SIGNING_LIMIT:
            raise Unavailable(
                f"space {self._space.name!r} changes faster than its models can be signed: the "
                f"active stop-list stays; try again when there are fewer writes"
            )

    def _band_values(self, records: Iterable[ModelRecord]) -> dict[int, bytes | None]:
        """Band values by model id; None for a model that no bucket can hold."""
        values: dict[int, bytes | None] = {}
        for model in records:
            support = self._support(model)
            left = None if support is None else filtered_support(support, self._stop_list)
            values[model.id] = minhash_bytes(left, self._space.signature)
        return values

    def _read(self, model: ModelRecord | None) -> tuple[Support, Support | None] | None:
        """The support of a model and its filtered support; None if it has no support."""
        support = None if model is None else self._support(model)
        return None if support is None else (support, filtered_support(support, self._stop_list))

    def _support(self, model: ModelRecord) -> Support | None:
        """The support of a model; None if it has none, was removed, or cannot be read.

        A model without one is unbanded, so every query compares it.
        """
        if model.kind == "signature":
            return None
        try:
            return self._reader.support(self._space, model)
        except ModelNotFound:
            return None
        except Unavailable as error:
            log.error("%s", error)
            return None

    def _collision_probability(self, a: Support | None, b: Support | None) -> float:
        """The probability that a query by one filtered support finds the other."""
        if a is None or b is None:
            return 1.0
        return collision_probability(jaccard(a, b), self._space.banding)
