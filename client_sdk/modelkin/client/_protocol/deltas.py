"""Sending only what changed: which supports a client remembers, and how the next one goes out.

A support that this client stored or read before, and that is still the one stored, is changed by a
delta where that is smaller than the support. Where the service has another one by now, or takes no
deltas, the support goes out whole, and nobody notices. Nothing here sends.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from modelkin import wire
from modelkin._validation import check_model_name, check_tags
from modelkin.client._protocol import revisions, spaces
from modelkin.client._protocol.flows import Script
from modelkin.client._protocol.spaces import Call
from modelkin.core.support import Support
from modelkin.errors import ApiError, InvalidParameter
from modelkin.types.models import ModelInfo

__all__ = ["MEMORY", "Memory", "put_support"]

MEMORY: Final = 64 << 20
"""Bytes of indices that a client remembers, unless it is told otherwise."""

_WHOLE: Final = frozenset({404, 405, 409, 412, 413, 415, 422, 428, 501})
"""Refusals of a delta that say nothing of the support itself: whole, it may well be taken."""
_NO_DELTAS: Final = frozenset({405, 415, 501})
"""What a service answers that does not know of deltas."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A support as it is stored, and the entity tag of the model that has it."""

    support: Support
    etag: str


class Memory:
    """The supports that a client knows to be stored, those used last, for any number of threads.

    Models go by the form of their names that ``check_model_name`` makes.

    Args:
        limit: bytes of indices at most; 0 remembers none, and no delta is ever sent.

    Raises:
        InvalidParameter: the limit is no number of bytes.
    """

    def __init__(self, limit: int) -> None:
        if type(limit) is not int or limit < 0:
            raise InvalidParameter(
                f"delta_memory must be bytes, 0 or more, not {limit!r}", field="delta_memory"
            )
        self._limit = limit
        self._size = 0
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._lock = threading.Lock()
        self._useless = False

    def recall(self, space: str, model: str) -> _Known | None:
        """What is known to be stored of a model."""
        key = space, model
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
            return known

    def note(self, space: str, model: str, support: Support, etag: str | None) -> None:
        """The support is what is stored, under this entity tag; None where none was told."""
        key, size = (space, model), support.indices.nbytes
        with self._lock:
            self._drop(key)
            if etag is None or size > self._limit or self._useless:
                return
            self._known[key] = _Known(support, etag)
            self._size += size
            while self._size > self._limit:
                self._drop(next(iter(self._known)))

    def see(self, info: ModelInfo) -> ModelInfo:
        """A model was described anew: its content may be known, and its entity tag is this one."""
        known = self.recall(info.space, info.model)
        if known is not None and info.etag is not None and known.support.digest == info.digest:
            self.note(info.space, info.model, known.support, info.etag)
        return info

    def forget(self, space: str, model: str) -> None:
        """Something else is stored."""
        with self._lock:
            self._drop((space, model))

    def give_up(self) -> None:
        """The service takes no deltas: remember nothing from now on."""
        with self._lock:
            self._useless = True
            self._known.clear()
            self._size = 0

    def _drop(self, key: tuple[str, str]) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self._size -= known.support.indices.nbytes


def put_support(
    memory: Memory,
    space: str,
    model: str,
    support: Support,
    tags: Iterable[str] | None,
    if_match: str | None,
) -> Script[ModelInfo]:
    """Stores a support, by the smaller of a delta and the whole."""
    model = check_model_name(model)
    tags = None if tags is None else check_tags(tags)
    whole = spaces.put_support(space, model, support, tags, if_match)
    stored: ModelInfo | None = None
    delta = _delta(memory, space, model, support, tags, if_match)
    if delta is not None and len(delta.request.content) < len(whole.request.content):
        try:
            stored = yield delta
        except ApiError as error:
            if error.status not in _WHOLE:
                raise
            memory.forget(space, model)
            if error.status in _NO_DELTAS:
                memory.give_up()
    if stored is None:
        stored = yield whole
    memory.note(space, model, support, stored.etag if stored.digest == support.digest else None)
    return stored


def _delta(
    memory: Memory,
    space: str,
    model: str,
    support: Support,
    tags: tuple[str, ...] | None,
    if_match: str | None,
) -> Call[ModelInfo] | None:
    """The call that changes what is stored into the support; None where that is not known, or is
    not what the caller wants to replace.
    """
    known = memory.recall(space, model)
    if known is None or known.support.num_parameters != support.num_parameters:
        return None
    if if_match is not None and if_match != known.etag:
        return None
    # A second try that meets the first one's effect is a 412, and then the support goes out whole;
    # but who asks for a condition is never sent twice.
    delta = wire.encode_delta(known.support, support)
    return revisions.patch_support(
        space, model, delta, tags, known.etag, idempotent=if_match is None
    )
