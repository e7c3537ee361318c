"""Band values: the minhashes that place a model in LSH buckets.

They are the model's signature. In a space with a stop-list they are the signature of its support
without the listed indices. This module caches the active stop-lists, decoded. It never creates a
stop-list and never writes to the database.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from app.index import stop_list_repository
from app.infra.db.database import Reader
from app.spaces.records import SpaceRecord
from modelkin.core.sketching.banding import remove_stop_list
from modelkin.core.sketching.schemes import value_dtype
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport
from modelkin.types.spaces import SignatureSpec

__all__ = [
    "STOP_LIST_CACHE_BYTES",
    "BandValueService",
    "BandValues",
    "filtered_support",
    "minhash_bytes",
    "signature_bytes",
]

log = logging.getLogger(__name__)

STOP_LIST_CACHE_BYTES = 256 << 20
"""Size of the stop-list cache; the last list used stays, however large it is."""


class BandValueService:
    """Computes and reads band values, with the active stop-lists of all spaces in a cache.

    Args:
        memory: size of the cache in bytes.
    """

    def __init__(self, *, memory: int = STOP_LIST_CACHE_BYTES) -> None:
        self._lock = threading.Lock()
        # A list that is larger than the cache counts as all of it, and so stays alone.
        self._cached: LRUCache[tuple[int, int], Support] = LRUCache(
            memory, lambda stop_list: min(stop_list.indices.nbytes, memory)
        )

    def prepare(self, session: Reader, space: SpaceRecord, support: Support) -> BandValues | None:
        """The band values of a support; None if the space no longer has this stop-list, or none."""
        stop_list = self._stop_list(session, space)
        if stop_list is None:
            return None
        filtered = filtered_support(support, stop_list)
        return BandValues(space.banding_version, minhash_bytes(filtered, space.signature))

    def settle(
        self,
        session: Reader,
        space: SpaceRecord,
        support: Support,
        prepared: BandValues | None,
    ) -> bytes | None:
        """The band values to store: those prepared, or new ones if the stop-list was replaced.

        Args:
            session: holds the lock of the space.
            space: as read under that lock.
            support: of the model.
            prepared: the values computed before the lock was taken.

        Returns:
            None for an unbanded model, and in a space without a stop-list.
        """
        if prepared is None or prepared.version != space.banding_version:
            prepared = self.prepare(session, space, support)
        return None if prepared is None else prepared.minhash

    def stored(
        self, session: Reader, space: SpaceRecord, model_id: int
    ) -> npt.NDArray[np.unsignedinteger] | None:
        """The band values of a stored model, in a space with a stop-list; None if unbanded.

        Returns:
            Shape ``(num_perm,)``.
        """
        minhash = stop_list_repository.get_band_values(session, model_id, space.banding_version)
        return None if minhash is None else _values(minhash, space.signature)

    def given(
        self, session: Reader, space: SpaceRecord, support: Support
    ) -> npt.NDArray[np.unsignedinteger] | None:
        """The band values of a support that is not stored, likewise."""
        prepared = self.prepare(session, space, support)
        if prepared is None or prepared.minhash is None:
            return None
        return _values(prepared.minhash, space.signature)

    def _stop_list(self, session: Reader, space: SpaceRecord) -> Support | None:
        if space.banding_version == 0:
            return None
        key = space.id, space.banding_version
        with self._lock:
            cached = self._cached.get(key)
        if cached is not None:
            return cached
        indices = stop_list_repository.get_indices(session, *key)
        if indices is None:
            return None
        try:
            read = Support.from_bytes(indices)
        except InvalidSupport as error:  # then models are unbanded, and are still found
            log.error("stop-list %d of space %r is damaged: %s", key[1], space.name, error)
            return None
        with self._lock:
            self._cached[key] = read
        return read


def filtered_support(support: Support, stop_list: Support) -> Support | None:
    """The support without the indices of a stop-list; None if no index remains."""
    remaining = remove_stop_list(support.indices, stop_list.indices)
    return Support.trusted(remaining, support.num_parameters) if remaining.size else None


def minhash_bytes(filtered: Support | None, spec: SignatureSpec) -> bytes | None:
    """The stored minhashes of a filtered support; None if no index remains."""
    if filtered is None:
        return None
    return signature_bytes(filtered.signature(spec.num_perm, spec.seed, spec.scheme))


def _values(minhash: bytes, spec: SignatureSpec) -> npt.NDArray[np.unsignedinteger]:
    return np.frombuffer(minhash, value_dtype(spec.scheme).newbyteorder("<"))


@dataclass(frozen=True, slots=True)
class BandValues:
    """The band values of a support under one version of a stop-list.

    Attributes:
        version: of the list.
        minhash: little-endian values; None if the list contains the whole support.
    """

    version: int
    minhash: bytes | None


def signature_bytes(signature: Signature) -> bytes:
    """The values of a signature as the database stores them, little-endian."""
    dtype = np.dtype(value_dtype(signature.scheme)).newbyteorder("<")
    return signature.values.astype(dtype, copy=False).tobytes()
