"""LSH buckets as a search uses them: kept behind the database, and trusted only as far as it says.

The buckets follow their spaces in threads of their own, so that no query waits for more than a
moment. A query is answered from buckets that are at its version, or nearly: then what changed since
is added to what they propose. It is told when they cannot serve it. In a space with a stop-list the
models that no bucket can hold are added too. Nothing here ranks models.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import BackendUnavailable, SpaceNotFound, Unavailable
from app.index import change_repository, stop_list_repository
from app.index.banding import Bands
from app.index.buckets.batching import Step, in_steps
from app.index.buckets.protocol import Buckets, BucketState, Candidates
from app.index.epoch_repository import ensure_bucket_epoch, history, renew_bucket_epoch
from app.infra.db.database import Database, Reader
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord
from modelkin.core.packed import PackedSupport
from modelkin.core.sketching.banding import band_keys
from modelkin.core.sketching.signature import value_dtype
from modelkin.errors import ModelkinError

__all__ = ["BucketMates", "BucketService"]

log = logging.getLogger(__name__)

OnProgress = Callable[[int, int, str], None]
"""How many changes are in the buckets, of how many, and what is being done."""

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
_UNBANDED = 1_000
"""Models outside all buckets that are added to what these propose; beyond, a scan is no dearer."""
_ATTEMPTS = 3
"""Times a build is begun again before it is given up: each needs another process to interfere."""


@dataclass(frozen=True, slots=True)
class BucketMates:
    """The models that share a bucket with a query.

    Attributes:
        ids: ascending; shape ``(n,)``. Some may have been removed since.
        truncated: others may be as near: buckets were left out, because they hold too many, or the
            query, or too many of the models, are in none.
    """

    ids: npt.NDArray[np.int64]
    truncated: bool


class BucketService:
    """The buckets of all spaces, and the threads that keep them up with the database.

    Args:
        database: the truth.
        buckets: derived from it; closed by whoever opened it.
        bands: what is banded in spaces with a stop-list.
    """

    def __init__(self, database: Database, buckets: Buckets, bands: Bands) -> None:
        self._database = database
        self._buckets = buckets
        self._bands = bands
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
        self,
        session: Reader,
        space: SpaceRecord,
        values: npt.NDArray[np.unsignedinteger],
        *,
        model_id: int | None = None,
        packed: PackedSupport | None = None,
    ) -> BucketMates | None:
        """The models in the buckets of a query, as of the space's version or later.

        Args:
            values: its signature, of this space, shape ``(num_perm,)``.
            model_id: of the stored model that it is, or None. This and ``packed`` are only needed
                in a space with a stop-list, which is banded by what is left of supports.
            packed: its support, or None where it has only a signature.

        Returns:
            None where the buckets cannot be used, or are further behind than a query can wait for.
        """
        if space.stop_list is None:
            return self._mates(session, space, values)
        outside = stop_list_repository.unbanded(session, space, _UNBANDED + 1)
        banded = self._banded(session, space, model_id, packed)
        if banded is None or len(outside) > _UNBANDED:
            return BucketMates(np.empty(0, np.int64), truncated=True)
        mates = self._mates(session, space, banded)
        if mates is None:
            return None
        return replace(mates, ids=np.union1d(mates.ids, np.array(outside, np.int64)))

    def _banded(
        self,
        session: Reader,
        space: SpaceRecord,
        model_id: int | None,
        packed: PackedSupport | None,
    ) -> npt.NDArray[np.unsignedinteger] | None:
        """What a query is banded by in a space with a stop-list; None for an unbanded one."""
        if model_id is not None:
            return self._bands.stored(session, space, model_id)
        return None if packed is None else self._bands.given(session, space, packed.unpack())

    def _mates(
        self, session: Reader, space: SpaceRecord, values: npt.NDArray[np.unsignedinteger]
    ) -> BucketMates | None:
        """The models in the buckets of what is banded."""
        keys = band_keys(values, space.banding)
        try:
            found = self._buckets.candidates(space.id, keys, _ENTRIES)
            self._note_success()
            known = _known(found.state, space.bucket_epoch, space.banding_version)
            # Buckets ahead of this view may be those of a database that was restored from a copy.
            if known is None or not space.version - _TAIL <= known <= space.version:
                epoch = self._follow_soon(space, known or 0)
                if epoch is None:
                    return None
                found = self._buckets.candidates(space.id, keys, _ENTRIES)
                known = _known(found.state, epoch, space.banding_version)
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

    def rebuild(self, space: SpaceRecord, progress: OnProgress | None = None) -> None:
        """Build the buckets of a space anew, from the database alone, while others use them.

        Args:
            progress: told again and again; what it raises ends the building.

        Raises:
            BackendUnavailable: they cannot be written now.
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

    def _catch_up(self, space_id: int, progress: OnProgress | None = None) -> int:
        """Apply to the buckets whatever they have not seen; the epoch that they are of."""
        for _ in range(_ATTEMPTS):
            # The buckets are asked first: they can only be ahead of a view that is taken later if
            # the database is not the one that they followed.
            state = self._buckets.state(space_id)
            epoch = self._epoch(space_id, state)
            if self._apply_all(space_id, epoch, progress or _silent):
                return epoch
        raise BackendUnavailable(f"the LSH buckets of space {space_id} are being built by others")

    def _epoch(self, space_id: int, state: BucketState | None) -> int:
        """The epoch that the buckets have to be of; those of another one are dropped."""
        with self._database.reading() as session:
            space = _existing(session, space_id)
        epoch = space.bucket_epoch
        astray = state is not None and state.epoch == epoch and not _can_follow(state, space)
        if epoch is None or astray:
            renew = renew_bucket_epoch if astray else ensure_bucket_epoch
            with self._database.writing() as session:
                epoch = renew(session, space_id)
        if state is not None and _known(state, epoch, space.banding_version) is None:
            self._buckets.drop(space_id)
        return epoch

    def _apply_all(self, space_id: int, epoch: int, progress: OnProgress) -> bool:
        """Whether the buckets are at the version that the database has now."""
        state = self._buckets.state(space_id)
        with self._database.reading() as session:
            space = _existing(session, space_id)
            if space.bucket_epoch != epoch:
                return False
            if state is not None and _known(state, epoch, space.banding_version) is None:
                return False
            if state is not None and not _can_follow(state, space):
                return False
            since = 0 if state is None else state.version
            if state is not None and since == space.version:
                return True
            changed = history(session, space_id, since, space.banding_version)
            at_once = self._buckets.at_once
            for step in in_steps(changed, since, space.version, at_once=at_once):
                if self._closing.is_set():
                    raise BackendUnavailable("the service is stopping")
                progress(step.since, space.version, "bucketing")
                if not self._apply(space, epoch, step):
                    return False
        return True

    def _apply(self, space: SpaceRecord, epoch: int, step: Step) -> bool:
        keys = _keys(space, [signature for _, signature in step.upserts])
        upserts = zip((model_id for model_id, _ in step.upserts), keys, strict=True)
        return self._buckets.apply(
            space.id,
            epoch,
            step.since,
            step.until,
            upserts,
            step.removals,
            banding_version=space.banding_version,
        )

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


def _silent(done: int, total: int, stage: str) -> None:
    """Where nobody asks how far it is."""


def _known(state: BucketState | None, epoch: int | None, banding_version: int) -> int | None:
    """The version that the buckets are at; None where they are of another build, hence lost."""
    if state is None or (state.epoch, state.banding_version) != (epoch, banding_version):
        return None
    return state.version


def _can_follow(state: BucketState, space: SpaceRecord) -> bool:
    """Whether the history of the space leads on from where the buckets are.

    It does not where they are ahead of the database, which then is not the one that they followed,
    nor where removals that they have not seen are told no more.
    """
    return state.version <= space.version and (
        state.version == 0 or state.version >= space.compacted_version
    )


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
    changed = change_repository.changed_ids(session, space.id, known)
    return np.union1d(found.ids, np.array(changed, np.int64))


def _keys(space: SpaceRecord, signatures: list[bytes]) -> npt.NDArray[np.uint64]:
    """The keys of some signatures, shape ``(n, bands)``."""
    spec = space.signature
    dtype = value_dtype(spec.scheme).newbyteorder("<")
    values: npt.NDArray[Any] = np.frombuffer(b"".join(signatures), dtype)
    return band_keys(values.reshape(-1, spec.num_perm), space.banding)
