"""What a model is banded by: its signature or, in a space with a stop-list, the signature of what
the list leaves of its support.

Keeps the stop-lists in force at hand, decoded. It never makes one, and never writes.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.index import stop_list_repository
from app.infra.db.database import Reader
from app.spaces.records import SpaceRecord
from modelkin.core.sketching.banding import without
from modelkin.core.sketching.signature import Signature, value_dtype
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport
from modelkin.types.spaces import SignatureSpec

__all__ = ["Bands", "left_of", "minhash_of", "BandValues", "bytes_of"]

log = logging.getLogger(__name__)

_MEMORY = 256 << 20
"""Bytes of stop-lists that are kept; one is kept however large it is."""


class Bands:
    """The stop-lists in force, of all spaces.

    Args:
        memory: bytes of them that are kept.
    """

    def __init__(self, *, memory: int = _MEMORY) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], Support] = OrderedDict()

    def prepare(self, session: Reader, space: SpaceRecord, support: Support) -> BandValues | None:
        """The band values of a support; None where the space has no stop-list, or not this one
        any more.
        """
        stop_list = self._stop_list(session, space)
        if stop_list is None:
            return None
        left = left_of(support, stop_list)
        return BandValues(space.banding_version, minhash_of(left, space.signature))

    def settle(
        self,
        session: Reader,
        space: SpaceRecord,
        support: Support,
        prepared: BandValues | None,
    ) -> bytes | None:
        """The band values as they are to be stored: as prepared, or made anew where the stop-list
        was exchanged since; None for an unbanded model, and in a space without a stop-list.

        Args:
            session: holds the lock of the space.
            space: as it is under that lock.
            support: of the model.
            prepared: before the lock.
        """
        if prepared is None or prepared.version != space.banding_version:
            prepared = self.prepare(session, space, support)
        return None if prepared is None else prepared.minhash

    def stored(
        self, session: Reader, space: SpaceRecord, model_id: int
    ) -> npt.NDArray[np.unsignedinteger] | None:
        """What a stored model of a space with a stop-list is banded by; None for an unbanded one.

        Returns:
            Shape ``(num_perm,)``.
        """
        minhash = stop_list_repository.get_band_values(session, model_id, space.banding_version)
        return None if minhash is None else _values(minhash, space.signature)

    def given(
        self, session: Reader, space: SpaceRecord, support: Support
    ) -> npt.NDArray[np.unsignedinteger] | None:
        """The same of a support that is not stored."""
        made = self.prepare(session, space, support)
        if made is None or made.minhash is None:
            return None
        return _values(made.minhash, space.signature)

    def _stop_list(self, session: Reader, space: SpaceRecord) -> Support | None:
        if space.banding_version == 0:
            return None
        key = space.id, space.banding_version
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        indices = stop_list_repository.get_indices(session, *key)
        if indices is None:
            return None
        try:
            read = Support.from_bytes(indices)
        except InvalidSupport as error:  # models are unbanded then, and still found
            log.error("stop-list %d of space %r is damaged: %s", key[1], space.name, error)
            return None
        with self._lock:
            self._kept[key] = read
            while len(self._kept) > 1 and self._bytes() > self._memory:
                self._kept.popitem(last=False)
        return read

    def _bytes(self) -> int:
        return sum(kept.indices.nbytes for kept in self._kept.values())


def left_of(support: Support, stop_list: Support) -> Support | None:
    """What a stop-list leaves of a support; None where that is nothing."""
    left = without(support.indices, stop_list.indices)
    return Support(left, support.num_parameters) if left.size else None


def minhash_of(left: Support | None, spec: SignatureSpec) -> bytes | None:
    """The values that are stored of what a stop-list left."""
    if left is None:
        return None
    return bytes_of(left.signature(spec.num_perm, spec.seed, spec.scheme))


def _values(minhash: bytes, spec: SignatureSpec) -> npt.NDArray[np.unsignedinteger]:
    return np.frombuffer(minhash, value_dtype(spec.scheme).newbyteorder("<"))


@dataclass(frozen=True, slots=True)
class BandValues:
    """What a support is banded by under one version of a stop-list.

    Attributes:
        version: of the list.
        minhash: little-endian values; None where the list leaves nothing.
    """

    version: int
    minhash: bytes | None


def bytes_of(signature: Signature) -> bytes:
    """The values as they are stored, little-endian."""
    dtype = np.dtype(value_dtype(signature.scheme)).newbyteorder("<")
    return signature.values.astype(dtype, copy=False).tobytes()
