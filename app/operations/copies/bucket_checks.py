"""Checks of LSH buckets: each model is in exactly the buckets of its signature.

Buckets follow the database, so a model that changed after the buckets' version is not compared.
Buckets of another epoch are lost, which is not a fault: the next query rebuilds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Database
from app.models.index.buckets.protocol import BANDING_VERSION, Buckets, BucketState
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.operations.copies import repository
from app.operations.copies.records import Finding, name_of
from modelkin.core.sketching.banding import band_keys
from modelkin.core.sketching.schemes import value_dtype

__all__ = ["BucketChecks"]

_MAX_ATTEMPTS = 20
_PAUSE_S = 0.05
"""Seconds between two attempts, while the buckets follow a change."""


class BucketChecks:
    """A comparison of the buckets of spaces with the signatures in the database.

    Args:
        database: the truth.
        buckets: derived from it.
        rebuild: builds the buckets of a space again.
    """

    def __init__(
        self, database: Database, buckets: Buckets, rebuild: Callable[[SpaceRecord], None]
    ) -> None:
        self._database = database
        self._buckets = buckets
        self._rebuild = rebuild

    def findings(self, space_id: int) -> Iterator[Finding]:
        """Yield one finding if a bucket of the space is wrong, or changes prevented the check."""
        for _ in range(_MAX_ATTEMPTS):
            state, space, wrong = self._compare(space_id)
            if state is None or space is None:
                return
            if self._buckets.state(space_id) == state:  # else they have moved on meanwhile
                if wrong is not None:
                    yield Finding(
                        name_of(space),
                        f"its LSH buckets are wrong: {wrong}: run rebuild-buckets",
                        partial(self._rebuild, space),
                    )
                return
            subject = name_of(space)
            time.sleep(_PAUSE_S)
        yield Finding(
            subject,
            f"its LSH buckets are not verified: they followed changes each of the {_MAX_ATTEMPTS} "
            f"times that they were read: verify again while less is written",
        )

    def _compare(self, space_id: int) -> tuple[BucketState | None, SpaceRecord | None, str | None]:
        """Compare the buckets of a space with its signatures.

        Returns:
            The state that was compared, None if there is nothing to compare; the space; and the
            fault that was found, or None.
        """
        state = self._buckets.state(space_id)
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, space_id)
        if state is None or space is None or not _is_current(state, space):
            return None, space, None
        models, entries, wrong = 0, 0, None
        for page in self._pages(space):
            expected = _expected_keys(space, [row for row in page if row[1] <= state.version])
            held = self._buckets.members(space_id, list(expected))
            models += sum(keys is not None for keys in expected.values())
            entries += sum(len(keys) // 8 for keys in expected.values() if keys is not None)
            lost = [i for i, keys in expected.items() if held.get(i) != keys]
            if lost and wrong is None:
                wrong = f"model {lost[0]} is in others than its signature says"
        if wrong is None and state.version == space.version:
            wrong = self._strangers(space, models, entries)
        return state, space, wrong

    def _pages(self, space: SpaceRecord) -> Iterator[list[tuple[int, int, bytes | None]]]:
        last, size = 0, self._buckets.max_step_size
        while True:
            with self._database.reading() as session:
                page = repository.signatures_page(session, space.id, last, size)
            if not page:
                return
            last = page[-1][0]
            yield page

    def _strangers(self, space: SpaceRecord, models: int, entries: int) -> str | None:
        """Say how the buckets' sizes differ from the space's, if the space has not changed."""
        sizes = self._buckets.sizes(space.id)
        with self._database.reading() as session:
            now = spaces.find_space_by_id(session, space.id)
        if sizes is None or now is None or now.version != space.version:
            return None
        if sizes.models != models:
            return f"they hold {sizes.models} models and not {models}"
        if sizes.entries not in {None, entries}:
            return f"they have {sizes.entries} entries and not {entries}"
        return None


def _is_current(state: BucketState, space: SpaceRecord) -> bool:
    """Whether queries use these buckets."""
    return (state.epoch, state.banding_version) == (
        space.bucket_epoch,
        BANDING_VERSION,
    ) and space.compacted_version <= state.version <= space.version


def _expected_keys(
    space: SpaceRecord, rows: Sequence[tuple[int, int, bytes | None]]
) -> dict[int, bytes | None]:
    """The keys of each model's buckets, distinct, ascending; None for one in no bucket."""
    dtype = value_dtype(space.signature.scheme).newbyteorder("<")
    size = space.signature.num_perm * dtype.itemsize
    keys: dict[int, bytes | None] = {}
    for model_id, _, minhash in rows:
        if minhash is None:
            keys[model_id] = None
        elif len(minhash) == size:  # another length is a separate finding
            values: npt.NDArray[Any] = np.frombuffer(minhash, dtype)
            keys[model_id] = np.unique(band_keys(values, space.banding)).astype(">u8").tobytes()
    return keys
