"""Uploads of patches: a cache of stored supports, and the flow that sends the smaller upload.

A patch changes a support that this client stored or read before, where the patch is smaller than
the new support. Where the service has another support by now, or takes no patches, the flow sends
the support whole.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from modelkin import wire
from modelkin._processes import PerProcess
from modelkin._validation import check_model_name, check_tags
from modelkin.client._protocol import supports
from modelkin.client._protocol.calls.call import Call
from modelkin.client._protocol.calls.flows import Flow
from modelkin.client._protocol.calls.requests import Condition
from modelkin.core.support import Support
from modelkin.errors import ApiError, InvalidParameter
from modelkin.types.models import ModelInfo

__all__ = ["DEFAULT_CACHE_BYTES", "SupportCache", "put_support"]

DEFAULT_CACHE_BYTES: Final = 64 << 20
"""The bytes of indices that the cache of a client holds by default."""

_RETRIED_WHOLE: Final = frozenset({404, 405, 409, 412, 413, 415, 422, 428, 501})
"""Statuses that refuse a patch and may accept the whole support."""
_PATCHES_UNSUPPORTED: Final = frozenset({405, 415, 501})
"""Statuses of a service without patches."""


@dataclass(frozen=True, slots=True)
class _StoredSupport:
    """A stored support, and the entity tag of its model."""

    support: Support
    etag: str


class SupportCache:
    """An LRU cache of supports that the service stores; threads may share it.

    Model names are in the form that ``check_model_name`` returns.

    Args:
        max_bytes: the most bytes of indices; 0 turns the cache off, and with it patches.

    Raises:
        InvalidParameter: ``max_bytes`` is not a number of bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        if type(max_bytes) is not int or max_bytes < 0:
            raise InvalidParameter(
                f"delta_cache_bytes must be bytes, 0 or more, not {max_bytes!r}",
                field="delta_cache_bytes",
            )
        self._max_bytes = max_bytes
        self._size = 0
        self._stored: OrderedDict[tuple[str, str], _StoredSupport] = OrderedDict()
        self._lock = PerProcess(threading.Lock)
        self._disabled = False

    def get(self, space: str, model: str) -> _StoredSupport | None:
        """The stored support of a model, or None if it is not known."""
        key = space, model
        with self._lock.get():
            known = self._stored.get(key)
            if known is not None:
                self._stored.move_to_end(key)
            return known

    def put(self, space: str, model: str, support: Support, etag: str | None) -> None:
        """Keeps the stored support of a model; forgets it if there is no entity tag.

        No patch changes an ordered support, so ordered supports are not kept.
        """
        key, size = (space, model), support.indices.nbytes
        with self._lock.get():
            self._drop(key)
            if etag is None or support.ordered or size > self._max_bytes or self._disabled:
                return
            self._stored[key] = _StoredSupport(support, etag)
            self._size += size
            while self._size > self._max_bytes and self._stored:
                self._drop(next(iter(self._stored)))

    def update(self, info: ModelInfo) -> ModelInfo:
        """Notes the new entity tag of a model whose content is the cached one."""
        known = self.get(info.space, info.model)
        if known is not None and info.etag is not None and known.support.digest == info.digest:
            self.put(info.space, info.model, known.support, info.etag)
        return info

    def discard(self, space: str, model: str) -> None:
        """Forgets the support of a model."""
        with self._lock.get():
            self._drop((space, model))

    def disable(self) -> None:
        """Empties the cache and turns it off: the service takes no patches."""
        with self._lock.get():
            self._disabled = True
            self._stored.clear()
            self._size = 0

    def _drop(self, key: tuple[str, str]) -> None:
        known = self._stored.pop(key, None)
        if known is not None:
            self._size -= known.support.indices.nbytes


def put_support(
    cache: SupportCache,
    space: str,
    model: str,
    support: Support,
    tags: Iterable[str] | None,
    condition: Condition,
) -> Flow[ModelInfo]:
    """Stores a support, by a patch where that is smaller."""
    model = check_model_name(model)
    tags = None if tags is None else check_tags(tags)
    whole = supports.put_support(space, model, support, tags, condition)
    stored: ModelInfo | None = None
    patch = _patch(cache, space, model, support, tags, condition)
    if patch is not None and len(patch.request.content) < len(whole.request.content):
        try:
            stored = yield patch
        except ApiError as error:
            if error.status not in _RETRIED_WHOLE:
                raise
            cache.discard(space, model)
            if error.status in _PATCHES_UNSUPPORTED:
                cache.disable()
    if stored is None:
        stored = yield whole
    cache.put(space, model, support, stored.etag if stored.digest == support.digest else None)
    return stored


def _patch(
    cache: SupportCache,
    space: str,
    model: str,
    support: Support,
    tags: tuple[str, ...] | None,
    condition: Condition,
) -> Call[ModelInfo] | None:
    """The call that changes the stored support into this one.

    None if the stored support is not known, or is not the version that the caller replaces, or if
    the caller replaces no version; for an ordered support, where a few changed indices also change
    the octaves of other indices; and where either has gaps, for which a patch has no place.
    """
    if support.ordered or condition.create_only:
        return None
    known = cache.get(space, model)
    if known is None or known.support.num_parameters != support.num_parameters:
        return None
    if support.gaps or known.support.gaps or condition.if_match not in (None, known.etag):
        return None
    # A second attempt that finds the first one's effect is a 412, after which the support goes out
    # whole. An upload with a condition of the caller is sent once.
    patch = wire.encode_patch(known.support, support)
    return supports.patch_support(
        space, model, patch, support, tags, known.etag, idempotent=condition.if_match is None
    )
