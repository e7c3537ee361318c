"""LSH buckets as a search uses them: kept behind the database, and trusted only as far as it says.

The buckets follow their spaces in threads of their own, so that no query waits for more than a
moment. A query is answered from buckets that are at its version, or nearly: then what changed since
is added to what they propose. It is told when they cannot serve it. Nothing here ranks models.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.stores.buckets.steps import Step, in_steps
from app.stores.ports import Buckets, BucketState, Candidates, SpaceRecord
from app.stores.sql import models, spaces
from app.stores.sql.database import Database, Reader
from app.stores.sql.epochs import ensure_bucket_epoch, history, renew_bucket_epoch
from modelkin.core.banding import band_keys
from modelkin.core.signature import value_dtype
from modelkin.errors import BackendUnavailable, ModelkinError, SpaceNotFound, Unavailable

__all__ = ["BucketMates", "BucketService"]

log = logging.getLogger(__name__)

_ENTRIES = 50_000
"""Entries that a query reads at most, over all its buckets."""
_TAIL = 200
"""Changes that a query reads from the database itself, if the buckets are not there yet."""
_SOON = 1_000
"""Changes that are applied in a moment: for these a query waits, for more it does not."""
_PATIENCE = 0.3
"""Seconds that it waits."""
_FOLLOWERS = 2
"""Threads, and connections to the database that they may hold."""
_ATTEMPTS = 3
"""Times a build is begun again before it is given up: each needs another process to interfere."""


@dataclass(frozen=True, slots=True)
class BucketMates:
    """The models that share a bucket with a query.

    Attributes:
        ids: ascending; shape ``(n,)``. Some may have been removed since.
        truncated: buckets were left out, because they hold too many.
    """

    ids: npt.NDArray[np.int64]
    truncated: bool


class BucketService:
    """The buckets of all spaces, and the threads that keep them up with the database.

    Args:
        database: the truth.
        buckets: derived from it; closed by whoever opened it.
    """

    def __init__(self, database: Database, buckets: Buckets) -> None:
        self._database = database
        self._buckets = buckets
        self._pool = ThreadPoolExecutor(_FOLLOWERS, thread_name_prefix="buckets")
        self._lock = threading.Lock()
        self._following: dict[int, Future[int]] = {}
        self._dropping: set[int] = set()
        self._closing = threading.Event()
        self._failing = False

    def start(self) -> None:
        """Connect, and free what was dropped before; in the background, whether it works or not."""
        self._submit(self._clean)

    def mates(
        self, session: Reader, space: SpaceRecord, values: npt.NDArray[np.unsignedinteger]
    ) -> BucketMates | None:
        """The models in the buckets of a signature, as of the space's version or later.

        Args:
            values: a signature of this space, shape ``(num_perm,)``.

        Returns:
            None where the buckets cannot be used, or are further behind than a query can wait for.
        """
        keys = band_keys(values, space.banding)
        try:
            found = self._buckets.candidates(space.id, keys, _ENTRIES)
            self._note_success()
            known = _known(found.state, space.bucket_epoch)
            # Buckets ahead of this view may be those of a database that was restored from a copy.
            if known is None or not space.version - _TAIL <= known <= space.version:
                epoch = self._follow_soon(space, known or 0)
                if epoch is None:
                    return None
                found = self._buckets.candidates(space.id, keys, _ENTRIES)
                known = _known(found.state, epoch)
                if known is None or known < space.version - _TAIL:
                    return None
            elif known < space.version:
                self._follow(space.id)
        except Unavailable as error:
            self._note_failure(error)
            return None
        return BucketMates(_with_tail(session, space, found, known), found.truncated)

    def forget(self, space_id: int) -> None:
        """Free what a deleted space occupies, by and by."""
        with self._lock:
            self._dropping.add(space_id)
        self._submit(self._clean)

    def rebuild(self, space: SpaceRecord) -> None:
        """Build the buckets of a space anew, from the database alone, while others use them.

        Raises:
            BackendUnavailable: they cannot be written now.
            SpaceNotFound: the space was deleted.
        """
        with self._database.writing() as session:
            renew_bucket_epoch(session, space.id)
        self._catch_up(space.id)
        self._clean()

    def close(self) -> None:
        """Stop following, between two steps."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # --- following ----------------------------------------------------------------------------

    def _follow_soon(self, space: SpaceRecord, known: int) -> int | None:
        """The epoch of the buckets once they are there; None if that takes longer than a moment."""
        followed = self._follow(space.id)
        if followed is None or abs(space.version - known) > _SOON:
            return None
        try:
            return followed.result(_PATIENCE)
        except (TimeoutError, CancelledError, SpaceNotFound):
            return None

    def _follow(self, space_id: int) -> Future[int] | None:
        """Bring the buckets of a space up in the background; None while the service stops."""
        with self._lock:
            running = self._following.get(space_id)
            if running is not None:
                return running
            try:
                running = self._pool.submit(self._catch_up, space_id)
            except RuntimeError:
                return None
            self._following[space_id] = running
        running.add_done_callback(lambda done: self._followed(space_id, done))
        return running

    def _followed(self, space_id: int, done: Future[int]) -> None:
        with self._lock:
            self._following.pop(space_id, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            if isinstance(error, ModelkinError):
                log.info("the LSH buckets of space %d are not kept up now: %s", space_id, error)
            else:
                log.error("the LSH buckets of space %d cannot follow it", space_id, exc_info=error)

    def _catch_up(self, space_id: int) -> int:
        """Apply to the buckets whatever they have not seen; the epoch that they are of."""
        for _ in range(_ATTEMPTS):
            # The buckets are asked first: they can only be ahead of a view that is taken later if
            # the database is not the one that they followed.
            state = self._buckets.state(space_id)
            epoch = self._epoch(space_id, state)
            if self._apply_all(space_id, epoch):
                return epoch
        raise BackendUnavailable(f"the LSH buckets of space {space_id} are being built by others")

    def _epoch(self, space_id: int, state: BucketState | None) -> int:
        """The epoch that the buckets have to be of; those of another one are dropped."""
        with self._database.reading() as session:
            space = _existing(session, space_id)
        epoch = space.bucket_epoch
        ahead = state is not None and state.epoch == epoch and state.version > space.version
        if epoch is None or ahead:
            renew = renew_bucket_epoch if ahead else ensure_bucket_epoch
            with self._database.writing() as session:
                epoch = renew(session, space_id)
        if state is not None and _known(state, epoch) is None:
            self._buckets.drop(space_id)
        return epoch

    def _apply_all(self, space_id: int, epoch: int) -> bool:
        """Whether the buckets are at the version that the database has now."""
        state = self._buckets.state(space_id)
        if state is not None and _known(state, epoch) is None:
            return False
        with self._database.reading() as session:
            space = _existing(session, space_id)
            since = 0 if state is None else state.version
            if since > space.version:
                return False
            if state is not None and since == space.version:
                return True
            changes = history(session, space_id, since)
            at_once = self._buckets.at_once
            for step in in_steps(changes, since, space.version, at_once=at_once):
                if self._closing.is_set():
                    raise BackendUnavailable("the service is stopping")
                if not self._apply(space, epoch, step):
                    return False
        return True

    def _apply(self, space: SpaceRecord, epoch: int, step: Step) -> bool:
        keys = _keys(space, [signature for _, signature in step.upserts])
        upserts = zip((model_id for model_id, _ in step.upserts), keys, strict=True)
        return self._buckets.apply(space.id, epoch, step.since, step.until, upserts, step.removals)

    # --- dropping -----------------------------------------------------------------------------

    def _clean(self) -> None:
        """Drop the buckets of deleted spaces, and free what was dropped; a failure is kept."""
        try:
            with self._lock:
                dropping = tuple(self._dropping)
            for space_id in dropping:
                self._buckets.drop(space_id)
                with self._lock:
                    self._dropping.discard(space_id)
            self._buckets.ping()
            while not self._closing.is_set() and self._buckets.sweep():
                pass
        except Unavailable as error:
            self._note_failure(error)

    def _submit(self, action: Callable[[], None]) -> None:
        try:
            self._pool.submit(action)
        except RuntimeError:
            log.debug("the service is stopping, the buckets are cleaned at the next start")

    # --- the log ------------------------------------------------------------------------------

    def _note_failure(self, error: ModelkinError) -> None:
        """One line when they fail, not one a query."""
        if not self._failing:
            self._failing = True
            log.warning("%s; scans answer in their place", error)

    def _note_success(self) -> None:
        if self._failing:
            self._failing = False
            log.info("the LSH buckets answer again")
            self._submit(self._clean)


def _known(state: BucketState | None, epoch: int | None) -> int | None:
    """The version that the buckets are at; None where they are not of this epoch, hence lost."""
    if state is None or state.epoch != epoch or state.banding_version != 0:
        return None
    return state.version


def _existing(session: Reader, space_id: int) -> SpaceRecord:
    space = spaces.find_space_by_id(session, space_id)
    if space is None:
        raise SpaceNotFound(f"space {space_id} was deleted")
    return space


def _with_tail(
    session: Reader, space: SpaceRecord, found: Candidates, known: int
) -> npt.NDArray[np.int64]:
    """What the buckets propose, and all that changed since: nobody who is new is missed."""
    if known >= space.version:
        return found.ids
    changed = [model_id for model_id, _ in models.changed_since(session, space.id, known)]
    return np.union1d(found.ids, np.array(changed, np.int64))


def _keys(space: SpaceRecord, signatures: list[bytes]) -> npt.NDArray[np.uint64]:
    """The keys of some signatures, shape ``(n, bands)``."""
    spec = space.signature
    dtype = value_dtype(spec.scheme).newbyteorder("<")
    values: npt.NDArray[Any] = np.frombuffer(b"".join(signatures), dtype)
    return band_keys(values.reshape(-1, spec.num_perm), space.banding)
