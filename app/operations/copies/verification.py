"""Verification: every support is there and whole, and all data derived from it are right.

The service may run meanwhile. Each page of models is read in a transaction of its own. A model that
looks wrong is read again, so that a change in between is not a finding. Verification changes
nothing; findings bring their repairs along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from app.infra.db.database import Database
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.infra.storage.encryption import Secrets
from app.models.index.buckets.service import BucketService
from app.models.spaces.repositories import spaces
from app.operations.copies import repository
from app.operations.copies.bucket_checks import BucketChecks
from app.operations.copies.derivation import SpaceState, space_state
from app.operations.copies.fingerprint_checks import FingerprintChecks
from app.operations.copies.learngene_checks import LearngeneChecks
from app.operations.copies.records import Finding, ModelState, name_of
from app.operations.copies.repairs import Repairs
from app.operations.copies.row_checks import RowChecks
from app.operations.copies.secret_checks import SecretChecks
from app.operations.copies.support_checks import SupportChecks
from app.operations.maintenance.blob_cleanup import ORPHAN_AGE_S, orphans
from app.tenancy.auth.tenants import store_token

__all__ = ["Progress", "Verification"]

Progress = Callable[[int, int, str], None]
"""A callback: how many models are verified, of how many, and the present stage."""

_PAGE_SIZE = 100
_ORPHANS_PAGE_SIZE = 1000
_MAX_READS = 32
_MAX_DEEP_READS = 4
"""Models of a store far away that are verified at a time; with their supports in memory, few."""
_MAX_LOOKS = 5
"""Times that a model is read while it changes and looks wrong."""


class Verification:
    """Verifies one installation.

    Args:
        blobs: its supports.
        buckets: its LSH buckets; None leaves them out.
        secrets: the keys of stored secrets; None leaves the secrets out.
        deep: whether to decode every support, and compute all derived data again.
        progress: a function that is called now and then.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        buckets: BucketService | None,
        *,
        secrets: Secrets | None = None,
        deep: bool,
        progress: Progress | None = None,
    ) -> None:
        self.models = 0
        """The number of verified models."""
        self._database = database
        self._blobs = blobs
        self._buckets = buckets if deep else None
        self._deep = deep
        self._progress = progress
        repairs = Repairs(database, blobs)
        self._rows = RowChecks(database, repairs)
        self._secrets = None if secrets is None else SecretChecks(database, secrets)
        with database.reading() as session:
            token = store_token(session)
        self._supports = SupportChecks(blobs, token, repairs, deep=deep)
        self._learngenes = LearngeneChecks(database, blobs, deep=deep)
        self._fingerprints = FingerprintChecks(database, deep=deep)

    def findings(self) -> Iterator[Finding]:
        """Yield all findings, as the checks make them."""
        yield from self._rows.findings()
        if self._secrets is not None:
            yield from self._secrets.findings()
        yield from self._models()
        yield from self._learngenes.findings()
        yield from self._fingerprints.findings()
        if self._deep:
            yield from self._of_spaces()
        yield from self._orphans()

    def _models(self) -> Iterator[Finding]:
        with self._database.reading() as session:
            total = sum(space.models for space in spaces.all_spaces(session))
        last = 0
        while True:
            with self._database.reading() as session:
                ids = repository.next_ids(session, last, _PAGE_SIZE)
            if not ids:
                return
            last = ids[-1]
            for found in self._in_turn(self.states(ids)):
                yield from found
                self.models += 1
            if self._progress is not None:
                self._progress(self.models, total, "verifying models")

    def _in_turn(self, states: Sequence[tuple[SpaceState, ModelState]]) -> Iterator[list[Finding]]:
        """The findings in each model, in order; those in a store far away are made side by side."""
        readers = 1
        if self._blobs.keeps_heads:
            readers = _MAX_DEEP_READS if self._deep else _MAX_READS
        with ThreadPoolExecutor(readers) as pool:
            yield from pool.map(self._settled_findings, *zip(*states, strict=True))

    def states(self, ids: Sequence[int]) -> list[tuple[SpaceState, ModelState]]:
        """Models with their spaces, at one moment; without those whose space is missing."""
        with self._database.reading() as session:
            states = repository.model_states(session, ids)
            of: dict[int, SpaceState] = {}
            for space_id in {state.model.space_id for state in states}:
                space = spaces.find_space_by_id(session, space_id)
                if space is not None:
                    of[space_id] = space_state(session, space)
        return [(of[s.model.space_id], s) for s in states if s.model.space_id in of]

    def _settled_findings(self, of: SpaceState, state: ModelState) -> list[Finding]:
        """Findings in a model that has not changed since it was read."""
        for _ in range(_MAX_LOOKS):
            found = list(self._supports.findings(of, state))
            if not found:
                return []
            now = self.states([state.model.id])
            if not now:
                return []  # deleted meanwhile
            before, (of, state) = state, now[0]
            if before == state:
                return found
        changing = (
            f"it changed each of the {_MAX_LOOKS} times that it looked wrong: verify it again"
        )
        return [Finding(f"{name_of(of.space)}, model {state.model.name!r}", changing)]

    def _of_spaces(self) -> Iterator[Finding]:
        with self._database.reading() as session:
            existing = spaces.all_spaces(session)
        for space in existing:
            if self._buckets is not None:
                checks = BucketChecks(self._database, self._buckets.store, self._buckets.rebuild)
                yield from checks.findings(space.id)

    def _is_there(self, key: str) -> bool:
        try:
            return self._blobs.size(key) is not None
        except DamagedBlob:
            return True

    def _orphans(self) -> Iterator[Finding]:
        keys = self._blobs.keys(older_than=ORPHAN_AGE_S)
        while batch := list(islice(keys, _ORPHANS_PAGE_SIZE)):
            with self._database.reading() as session:
                unnamed = orphans(session, batch)
            # A file that a clean-up has deleted since the listing is gone from both.
            for key in sorted(filter(self._is_there, unnamed)):
                yield Finding(
                    f"file {key}", "no row names it: a sweep deletes it when it has been so a while"
                )
