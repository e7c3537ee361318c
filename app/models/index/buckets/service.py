"""The LSH service of a search: candidates from the buckets, which follow the database.

Background threads bring the buckets up to date, so a query waits a fraction of a second at most. A
query uses buckets that are at its version, or nearly; the models that changed since are added to
the candidates. If the buckets cannot serve it, it gets None. This module does not rank models.
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

from app.infra import fail_points
from app.infra.db.database import Database, Reader
from app.infra.errors import BackendUnavailable, SpaceNotFound, Unavailable, explain
from app.models.index.buckets.batching import Step, split_into_steps
from app.models.index.buckets.protocol import (
    BANDING_VERSION,
    BucketCandidates,
    Buckets,
    BucketState,
)
from app.models.index.repositories import changes
from app.models.index.repositories.epochs import ensure_bucket_epoch, history, renew_bucket_epoch
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from modelkin.core.sketching.banding import band_keys
from modelkin.core.sketching.schemes import value_dtype
from modelkin.errors import ModelkinError

__all__ = ["LshCandidates", "BucketService"]

log = logging.getLogger(__name__)

OnProgress = Callable[[int, int, str], None]
"""A callback: how many changes the buckets hold, of how many, and the present stage."""

_MAX_ENTRIES = 50_000
"""Entries that a query reads over all its buckets."""
_MAX_TAIL_CHANGES = 200
"""Changes that a query reads from the database, if the buckets do not hold them yet."""
_MAX_AWAITED_CHANGES = 1_000
"""Changes for which a query waits, because they are applied in a moment."""
_CATCH_UP_TIMEOUT_S = 0.3
"""Seconds that it waits for them."""
_FOLLOWER_THREADS = 2
"""Threads that update buckets; each may hold a connection to the database."""
_MAX_ATTEMPTS = 3
"""Tries of a build; one fails only if another process interferes."""


@dataclass(frozen=True, slots=True)
class LshCandidates:
    """The models that share a bucket with a query.

    Attributes:
        ids: ids of models, ascending, shape ``(n,)``; some models may have been removed since.
        truncated: whether other models may be as near, since too large buckets were left out.
    """

    ids: npt.NDArray[np.int64]
    truncated: bool


class BucketService:
    """The buckets of all spaces, and the threads that keep them up to date.

    Args:
        database: the database to read from.
        buckets: derived from it; the caller closes them.
    """

    def __init__(self, database: Database, buckets: Buckets) -> None:
        self._database = database
        self._buckets = buckets
        self._pool = ThreadPoolExecutor(_FOLLOWER_THREADS, thread_name_prefix="buckets")
        self._lock = threading.Lock()
        self._following: dict[int, Future[int]] = {}
        self._dropping: set[int] = set()
        self._closing = threading.Event()
        self._failing = False

    @property
    def store(self) -> Buckets:
        """The buckets themselves, for a verification."""
        return self._buckets

    def start(self) -> None:
        """Connect, and free dropped buckets, in the background; an error is only logged."""
        self._submit(self._clean)

    def candidates(
        self,
        session: Reader,
        space: SpaceRecord,
        values: npt.NDArray[np.unsignedinteger],
    ) -> LshCandidates | None:
        """The models in the buckets of a query, at the space's version or later.

        Args:
            values: the query's signature, of this space, shape ``(num_perm,)``.

        Returns:
            None if the buckets cannot be used, or are too far behind for a query to wait.
        """
        keys = band_keys(values, space.banding)
        try:
            found = self._buckets.candidates(space.id, keys, _MAX_ENTRIES)
            self._note_success()
            known = _trusted_version(found.state, space.bucket_epoch)
            # Buckets ahead of this transaction may be those of a database restored from a copy.
            if known is None or not space.version - _MAX_TAIL_CHANGES <= known <= space.version:
                epoch = self._follow_soon(space, known or 0)
                if epoch is None:
                    return None
                found = self._buckets.candidates(space.id, keys, _MAX_ENTRIES)
                known = _trusted_version(found.state, epoch)
                if known is None or known < space.version - _MAX_TAIL_CHANGES:
                    return None
            elif known < space.version:
                self._follow(space.id)
        except Unavailable as error:
            self._note_failure(error)
            return None
        return LshCandidates(_with_recent_changes(session, space, found, known), found.truncated)

    def forget(self, space_id: int) -> None:
        """Free the buckets of a deleted space in the background."""
        with self._lock:
            self._dropping.add(space_id)
        self._submit(self._clean)

    def rebuild(self, space: SpaceRecord, progress: OnProgress | None = None) -> None:
        """Build the buckets of a space again, from the database alone, while queries go on.

        Args:
            progress: called at each step; an exception that it raises ends the rebuild.

        Raises:
            BackendUnavailable: the buckets cannot be written now.
            SpaceNotFound: the space was deleted.
        """
        with self._database.writing() as session:
            renew_bucket_epoch(session, space.id)
        self._catch_up(space.id, progress)
        self._clean()

    def close(self) -> None:
        """Stop following, between two steps."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # --- following ----------------------------------------------------------------------------

    def _follow_soon(self, space: SpaceRecord, known: int) -> int | None:
        """The epoch of the buckets once they are up to date; None if a query should not wait."""
        followed = self._follow(space.id)
        if followed is None or abs(space.version - known) > _MAX_AWAITED_CHANGES:
            return None
        try:
            return followed.result(_CATCH_UP_TIMEOUT_S)
        except (TimeoutError, CancelledError, SpaceNotFound):
            return None

    def _follow(self, space_id: int) -> Future[int] | None:
        """Bring a space's buckets up to date in the background; None while the service stops."""
        with self._lock:
            running = self._following.get(space_id)
            if running is not None:
                return running
            try:
                running = self._pool.submit(self._catch_up, space_id)
            except RuntimeError:
                return None
            self._following[space_id] = running
        running.add_done_callback(lambda done: self._following_ended(space_id, done))
        return running

    def _following_ended(self, space_id: int, done: Future[int]) -> None:
        with self._lock:
            self._following.pop(space_id, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            if isinstance(error, ModelkinError):
                log.info(
                    "the LSH buckets of space %d are not kept up now: %s", space_id, explain(error)
                )
            else:
                log.error("the LSH buckets of space %d cannot follow it", space_id, exc_info=error)

    def _catch_up(self, space_id: int, progress: OnProgress | None = None) -> int:
        """Apply the changes that the buckets lack; return the epoch of the buckets."""
        for _ in range(_MAX_ATTEMPTS):
            # The state is read before the database. So the buckets can be ahead of it only if they
            # followed another database.
            state = self._buckets.state(space_id)
            epoch = self._epoch(space_id, state)
            if self._apply_all(space_id, epoch, progress or _no_progress):
                return epoch
        raise BackendUnavailable(
            f"another process is building the LSH buckets of space {space_id}: try again later"
        )

    def _epoch(self, space_id: int, state: BucketState | None) -> int:
        """The epoch that the buckets must have; drop those of another epoch."""
        with self._database.reading() as session:
            space = _require_space(session, space_id)
        epoch = space.bucket_epoch
        diverged = state is not None and state.epoch == epoch and not _can_follow(state, space)
        if epoch is None or diverged:
            renew = renew_bucket_epoch if diverged else ensure_bucket_epoch
            with self._database.writing() as session:
                epoch = renew(session, space_id)
        if state is not None and _trusted_version(state, epoch) is None:
            self._buckets.drop(space_id)
        return epoch

    def _apply_all(self, space_id: int, epoch: int, progress: OnProgress) -> bool:
        """Apply all changes; return whether the buckets are at the database's present version."""
        state = self._buckets.state(space_id)
        with self._database.reading() as session:
            space = _require_space(session, space_id)
            if space.bucket_epoch != epoch:
                return False
            if state is not None and _trusted_version(state, epoch) is None:
                return False
            if state is not None and not _can_follow(state, space):
                return False
            since = 0 if state is None else state.version
            if state is not None and since == space.version:
                return True
            changed = history(session, space_id, since)
            max_step_size = self._buckets.max_step_size
            for step in split_into_steps(
                changed, since, space.version, max_step_size=max_step_size
            ):
                if self._closing.is_set():
                    raise BackendUnavailable("the service is stopping")
                progress(step.since, space.version, "bucketing")
                if not self._apply(space, epoch, step):
                    return False
        return True

    def _apply(self, space: SpaceRecord, epoch: int, step: Step) -> bool:
        keys = _keys(space, [signature for _, signature in step.upserts])
        upserts = zip((model_id for model_id, _ in step.upserts), keys, strict=True)
        with fail_points.around("buckets"):
            return self._buckets.apply(
                space.id,
                epoch,
                step.since,
                step.until,
                upserts,
                step.removals,
            )

    # --- dropping -----------------------------------------------------------------------------

    def _clean(self) -> None:
        """Drop the buckets of deleted spaces and free dropped ones; on a failure, retry later."""
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
            log.debug("the service is stopping; the next start frees dropped buckets")

    # --- the log ------------------------------------------------------------------------------

    def _note_failure(self, error: ModelkinError) -> None:
        """Log the first failure, not one line a query."""
        if not self._failing:
            self._failing = True
            log.warning("%s; scans answer in their place", explain(error))

    def _note_success(self) -> None:
        if self._failing:
            self._failing = False
            log.info("the LSH buckets answer again")
            self._submit(self._clean)


def _no_progress(done: int, total: int, stage: str) -> None:
    """Ignore progress."""


def _trusted_version(state: BucketState | None, epoch: int | None) -> int | None:
    """The version of the buckets; None if they are of another build, and so are lost."""
    if state is None or (state.epoch, state.banding_version) != (epoch, BANDING_VERSION):
        return None
    return state.version


def _can_follow(state: BucketState, space: SpaceRecord) -> bool:
    """Whether the buckets can continue from their version.

    They cannot if they are ahead of the database, because then they followed another one. Nor can
    they if removals that they lack have been deleted from the change log.
    """
    return state.version <= space.version and (
        state.version == 0 or state.version >= space.compacted_version
    )


def _require_space(session: Reader, space_id: int) -> SpaceRecord:
    space = spaces.find_space_by_id(session, space_id)
    if space is None:
        raise SpaceNotFound(f"space {space_id} was deleted")
    return space


def _with_recent_changes(
    session: Reader, space: SpaceRecord, found: BucketCandidates, known: int
) -> npt.NDArray[np.int64]:
    """The buckets' candidates and all models that changed since, so that no new one is missed."""
    if known >= space.version:
        return found.ids
    changed = changes.changed_ids(session, space.id, known)
    return np.union1d(found.ids, np.array(changed, np.int64))


def _keys(space: SpaceRecord, signatures: list[bytes]) -> npt.NDArray[np.uint64]:
    """The keys of some signatures, shape ``(n, bands)``."""
    spec = space.signature
    dtype = value_dtype(spec.scheme).newbyteorder("<")
    values: npt.NDArray[Any] = np.frombuffer(b"".join(signatures), dtype)
    return band_keys(values.reshape(-1, spec.num_perm), space.banding)
