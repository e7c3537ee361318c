"""Supports in the tensor order of a space: a cache of its layout, and the flows that reorder.

Index i means the same parameter in two supports only if both have the same tensors in the same
order. A torch model names its parameters in the order of its code, a checkpoint is read in that of
names: a support that says its layout is put in the order of the space before it is sent.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from modelkin._validation import check_space_name
from modelkin.client._protocol import spaces
from modelkin.client._protocol.call import Call
from modelkin.client._protocol.flows import Flow
from modelkin.core.importance import origin_of
from modelkin.core.layout import Layout
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import ApiError, SpaceMismatch
from modelkin.types.spaces import SpaceInfo

__all__ = ["LayoutCache", "TensorOrder", "in_order", "one_call", "selection", "tensors_of"]

T = TypeVar("T")
R = TypeVar("R")

_MAX_SPACES: Final = 256
"""Spaces whose layouts a client remembers."""


@dataclass(frozen=True, slots=True)
class TensorOrder:
    """The tensors of a space, as supports for it have them.

    Attributes:
        space: its name.
        layout: its tensors in order, without those left out; None for a space without one.
        exclude: the patterns of the tensors that it leaves out.
    """

    space: str
    layout: Layout | None
    exclude: tuple[str, ...]

    def ordered(self, value: T) -> T:
        """A support in the order of the space; anything else, and what states no layout, as it is.

        Raises:
            SpaceMismatch: it has other tensors; names the first that differs. Or it is a signature
                of another order, which cannot be changed.
        """
        mine = _layout_of(value)
        if self.layout is None or mine is None or mine.digest == self.layout.digest:
            return value
        self._require_same(mine)
        if not isinstance(value, Support):
            raise SpaceMismatch(
                f"the signature is of the tensors of space {self.space!r} in another order, and "
                f"signatures cannot be reordered: select with order=client.spaces.get("
                f"{self.space!r}).layout"
            )
        moved: Any = value.reordered(self.layout)
        return moved  # type: ignore[no-any-return]

    def selection(self, layout: Layout) -> dict[str, Any]:
        """The arguments of ``select_support`` for an importance in this layout.

        Raises:
            SpaceMismatch: the tensors differ after those that the space leaves out; names the
                first.
        """
        if self.layout is None:
            return {"layout": layout}
        exclude = layout.matching(self.exclude)
        kept = layout.without(exclude) if exclude else layout
        if kept.digest != self.layout.digest:
            self._require_same(kept)
        return {"layout": layout, "exclude": exclude, "order": self.layout}

    def _require_same(self, mine: Layout) -> None:
        assert self.layout is not None
        try:
            mine.require_same_tensors(self.layout)
        except SpaceMismatch as error:
            left_out = mine.matching(self.exclude)
            remedy = (
                f"; the space leaves out {', '.join(map(repr, left_out))}: pass "
                f"exclude={list(left_out)} to select_support"
                if left_out
                else ""
            )
            raise SpaceMismatch(
                f"it has other tensors than space {self.space!r}: {error}{remedy}"
            ) from None


class LayoutCache:
    """The tensors of spaces, by name; threads may share it."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, TensorOrder] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, space: str) -> TensorOrder | None:
        """The tensors of a space; None where they are not known."""
        with self._lock:
            return self._known.get(space)

    def put(self, info: SpaceInfo) -> TensorOrder:
        """Remembers the tensors of a space."""
        found = TensorOrder(info.name, info.layout, tuple(info.exclude))
        with self._lock:
            self._known[info.name] = found
            self._known.move_to_end(info.name)
            while len(self._known) > _MAX_SPACES:
                self._known.popitem(last=False)
        return found

    def update(self, info: SpaceInfo) -> SpaceInfo:
        """Remembers the tensors of a space, and returns it."""
        self.put(info)
        return info

    def discard(self, space: str) -> None:
        """Forgets a space."""
        with self._lock:
            self._known.pop(space, None)


def tensors_of(cache: LayoutCache, space: str) -> Flow[TensorOrder]:
    """The tensors of a space, read from the service where they are not known."""
    known = cache.get(check_space_name(space))
    if known is None:
        known = cache.put((yield spaces.get(space)))
    return known


def in_order(cache: LayoutCache, space: str, value: T, send: Callable[[T], Flow[R]]) -> Flow[R]:
    """Sends a value in the order of a space's tensors.

    A space may have been made again since its layout was read. Where the service refuses what the
    cached layout gave, the layout is read again, and the value is sent again if it is another.

    Args:
        cache: of the client.
        space: its name.
        value: a support or signature that may state a layout; anything else is sent as it is.
        send: makes the calls for the value.
    """
    if _layout_of(value) is None:
        return (yield from send(value))
    known = cache.get(space)
    tensors = known or (yield from tensors_of(cache, space))
    try:
        return (yield from send(tensors.ordered(value)))
    except (ApiError, SpaceMismatch) as error:
        code = error.problem_code if isinstance(error, ApiError) else error.code
        if known is None or code != SpaceMismatch.code:
            raise
        cache.discard(space)
        fresh = yield from tensors_of(cache, space)
        if fresh == known:
            raise
    return (yield from send(fresh.ordered(value)))


def selection(
    cache: LayoutCache, space: str, importance: Any, layout: Layout | None
) -> Flow[dict[str, Any]]:
    """The arguments of ``select_support`` that put an importance in the order of a space.

    Args:
        cache: of the client.
        space: its name.
        importance: its attached layout counts where none is given.
        layout: of the importance.
    """
    if layout is None:
        origin = origin_of(importance)
        layout = None if origin is None else origin.layout
    if layout is None:
        return {}
    return (yield from tensors_of(cache, space)).selection(layout)


def one_call(call: Call[T]) -> Flow[T]:
    """The flow of a single call."""
    result: T = yield call
    return result


def _layout_of(value: Any) -> Layout | None:
    if not isinstance(value, Support | Signature) or value.origin is None:
        return None
    return value.origin.layout
