"""Banding a space by another stop-list, while its models come, change and go.

Models are signed in the order of their changes, a few at a time and without the space's lock: what
changes meanwhile comes up again behind. When hardly any are left, the last are signed under the
lock and all is exchanged in that transaction. Whatever stops this half-way leaves the space as it
was. It never decides what is common.
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
from app.maintenance.recall import Pairs, curve
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord, StopList
from modelkin.core.similarity.overlap import jaccard, similarity
from modelkin.core.sketching.banding import collision_probability
from modelkin.core.support import Support

__all__ = ["Progress", "StopListRollout"]

log = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
"""How much is done, of how much, and of what; whatever it raises ends the making."""

_AT_ONCE = 64
"""Models that are signed and written together."""
_LAST = 16
"""Models that may be left for the space's lock, each of which takes some milliseconds."""
_CHASE = 4
"""How many times over the models may be signed before the space is said to change too fast."""
_AT_LEAST = 10_000
"""Models that may be signed of a small space that grows."""


class StopListRollout:
    """One stop-list on its way into force.

    Args:
        database: the truth.
        library: reads supports.
        space: that is to be banded.
        version: of the stop-list, as it was begun.
        stop_list: what is common.
        progress: told again and again.
    """

    def __init__(
        self,
        database: Database,
        library: ModelReader,
        space: SpaceRecord,
        version: int,
        stop_list: Support,
        progress: Progress,
    ) -> None:
        self._database = database
        self._library = library
        self._space = space
        self._version = version
        self._stop_list = stop_list
        self._progress = progress
        self._since = 0
        self._signed = 0

    def sign_all(self, pairs: Pairs) -> None:
        """Make the band values of all models; ``pairs`` are drawn from them on the way.

        Raises:
            SpaceNotFound: the space was deleted.
            Conflict: another version was begun.
            Unavailable: the space changes faster than it is signed.
        """
        while self._sign_some(pairs) >= _LAST:
            self._progress(self._signed, max(self._signed, self._space.models), "signing models")

    def measure(self, pairs: Sequence[tuple[int, int]]) -> tuple[float | None, ...]:
        """The recall at each S, from pairs of ids that are grouped by their first."""
        found = []
        for asked, group in groupby(pairs, itemgetter(0)):
            own = self._read(asked)
            for _, other in group:
                theirs = self._read(other)
                if own is not None and theirs is not None:
                    found.append((similarity(own[0], theirs[0]), self._found(own[1], theirs[1])))
            self._progress(len(found), len(pairs), "measuring recall")
        return curve(found)

    def finish(self, made: StopList) -> None:
        """Sign what changed meanwhile, the last of it under the space's lock, and switch.

        Raises:
            SpaceNotFound, Conflict, Unavailable: as :meth:`sign_all`; nothing was switched.
        """
        while not self._switch(made):
            self._sign_some(None)

    def _sign_some(self, pairs: Pairs | None) -> int:
        """Sign the next models in the order of their changes; how many there were."""
        self._require_progress()
        with self._database.reading() as session:
            some = stop_list_repository.changed_after(session, self._space, self._since, _AT_ONCE)
            records = models.models_by_id(session, (model_id for model_id, _ in some))
            if pairs is not None:
                whole = [i for i, model in records.items() if model.kind == "support"]
                signatures = self._library.values(session, self._space, whole)
                if signatures:
                    pairs.see(list(signatures), np.stack(list(signatures.values())))
        values = self._band_values(records.values())
        with self._database.writing() as session:
            stop_list_repository.require_latest(session, self._space, self._version)
            stop_list_repository.put_band_values(session, self._space, self._version, values)
        if some:
            self._since = some[-1][1]
        self._signed += len(some)
        return len(some)

    def _switch(self, made: StopList) -> bool:
        """Put it in force; False where too many models have changed since they were signed."""
        with self._database.writing() as session:
            space = spaces.lock_space(session, self._space)
            stop_list_repository.require_latest(session, space, self._version)
            late = stop_list_repository.changed_after(session, space, self._since, _LAST + 1)
            if len(late) > _LAST:
                return False
            records = models.models_by_id(session, (model_id for model_id, _ in late))
            values = self._band_values(records.values())
            stop_list_repository.put_band_values(session, space, self._version, values)
            stop_list_repository.activate(session, space, made, self._stop_list.to_bytes())
        return True

    def _require_progress(self) -> None:
        if self._signed > _CHASE * self._space.models + _AT_LEAST:
            raise Unavailable(
                f"space {self._space.name!r} changes faster than its models can be signed: what "
                f"was in force stays, try again when less is written"
            )

    def _band_values(self, records: Iterable[ModelRecord]) -> dict[int, bytes | None]:
        """By the ids of the models; None of those that no bucket can hold."""
        values: dict[int, bytes | None] = {}
        for model in records:
            support = self._support(model)
            left = None if support is None else filtered_support(support, self._stop_list)
            values[model.id] = minhash_bytes(left, self._space.signature)
        return values

    def _read(self, model_id: int) -> tuple[Support, Support | None] | None:
        """The support of a model, if there is one, and what is left of it."""
        with self._database.reading() as session:
            model = models.models_by_id(session, [model_id]).get(model_id)
        support = None if model is None else self._support(model)
        return None if support is None else (support, filtered_support(support, self._stop_list))

    def _support(self, model: ModelRecord) -> Support | None:
        """The support of a model; None where it has none, was removed, or cannot be read: then it
        is unbanded, so that queries look at it as it is.
        """
        if model.kind == "signature":
            return None
        try:
            return self._library.support(self._space, model)
        except ModelNotFound:
            return None
        except Unavailable as error:
            log.error("%s", error)
            return None

    def _found(self, a: Support | None, b: Support | None) -> float:
        """The probability that a query by one finds the other, by what is left of them."""
        if a is None or b is None:
            return 1.0
        return collision_probability(jaccard(a, b), self._space.banding)
