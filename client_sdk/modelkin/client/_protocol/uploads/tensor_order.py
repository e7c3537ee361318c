"""Supports in the tensor order of a space: a cache of its layout, and the flows that reorder.

Index i means the same parameter in two supports only if both have the same tensors in the same
order. A torch model has its parameters in the order of its code, a checkpoint in the order of
names. So a support that states its layout is put in the order of the space before it is sent.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar

from modelkin._processes import PerProcess
from modelkin._validation import check_space_name
from modelkin.client._protocol import spaces
from modelkin.client._protocol.calls.call import Call
from modelkin.client._protocol.calls.flows import Flow
from modelkin.core.blinding import Blinding
from modelkin.core.importance import origin_of
from modelkin.core.layout import Layout
from modelkin.core.tensor_order import UNKNOWN, TensorOrder, blinding_of, layout_of
from modelkin.errors import ApiError, SpaceMismatch
from modelkin.types.spaces import SpaceInfo

__all__ = ["LayoutCache", "in_order", "one_call", "selection", "tensors_of"]

T = TypeVar("T")
R = TypeVar("R")

_MAX_SPACES: Final = 256
"""The most spaces whose layouts a client remembers."""


class LayoutCache:
    """The tensors of spaces, by name; threads may share it."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, TensorOrder] = OrderedDict()
        self._lock = PerProcess(threading.Lock)

    def get(self, space: str) -> TensorOrder | None:
        """The tensors of a space, or None if they are not known."""
        with self._lock.get():
            return self._known.get(space)

    def put(self, info: SpaceInfo) -> TensorOrder:
        """Remembers the tensors of a space."""
        found = TensorOrder(
            info.name,
            info.layout,
            tuple(info.exclude),
            info.blinding,
            info.ordered,
            info.num_parameters,
        )
        with self._lock.get():
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
        with self._lock.get():
            self._known.pop(space, None)


def tensors_of(cache: LayoutCache, space: str) -> Flow[TensorOrder]:
    """The tensors of a space, read from the service if they are not known.

    A key that may write and not read gets an order without a layout: uploads go out as they are,
    and the service compares their layout's digest with its own.
    """
    known = cache.get(check_space_name(space))
    if known is not None:
        return known
    try:
        info = yield spaces.get(space)
    except ApiError as error:
        if error.status != 403:
            raise
        return TensorOrder(space, None, (), UNKNOWN)
    return cache.put(info)


def in_order(cache: LayoutCache, space: str, value: T, send: Callable[[T], Flow[R]]) -> Flow[R]:
    """Sends a value in the order of a space's tensors.

    A space may have been made again since its layout was read. If the service refuses a value in
    the cached order, the layout is read again, and a changed value is sent again.

    Args:
        cache: the client's cache.
        space: the space's name.
        value: a support or signature that may state a layout or be blinded; other values are sent
            as they are.
        send: a function that makes the calls for the value.
    """
    known = cache.get(space)
    if known is None and layout_of(value) is None and blinding_of(value) is None:
        return (yield from send(value))
    tensors = known or (yield from tensors_of(cache, space))
    try:
        return (yield from send(tensors.in_order(value)))
    except (ApiError, SpaceMismatch) as error:
        code = error.problem_code if isinstance(error, ApiError) else error.code
        if known is None or code != SpaceMismatch.code:
            raise
        cache.discard(space)
        fresh = yield from tensors_of(cache, space)
        if fresh == known:
            raise
    return (yield from send(fresh.in_order(value)))


def selection(
    cache: LayoutCache,
    space: str,
    importance: Any,
    layout: Layout | None,
    blinding: Blinding | None = None,
    ordered: bool | None = None,
) -> Flow[dict[str, Any]]:
    """The arguments of ``select_support`` that make a support in a space's order.

    Args:
        cache: the client's cache.
        space: the space's name.
        importance: the importance, whose attached layout is the default.
        layout: the order of the importance's entries; None where it is unknown.
        blinding: the blinding of a blinded space, whose layout the service does not know.
        ordered: whether the support has octaves; by default as the space is, and none if this
            client may not read the space.

    Raises:
        SpaceMismatch: the space is blinded under another key, or one of the two is not blinded.
    """
    if ordered is None:
        ordered = (yield from tensors_of(cache, space)).octaves
    tensors = yield from _tensors_in_order(cache, space, importance, layout, blinding)
    return {"ordered": ordered, **tensors}


def _tensors_in_order(
    cache: LayoutCache,
    space: str,
    importance: Any,
    layout: Layout | None,
    blinding: Blinding | None,
) -> Flow[dict[str, Any]]:
    """The arguments that put the tensors of an importance in the order of a space."""
    if blinding is not None or cache.get(space) is not None:
        tensors = yield from tensors_of(cache, space)
        tensors.require_blinding(None if blinding is None else blinding.check)
    if layout is None:
        origin = origin_of(importance)
        layout = None if origin is None else origin.layout
    if layout is None:
        return {}
    if blinding is not None:
        order = TensorOrder(space, blinding.layout, (), blinding.check)
        return order.selection(layout)
    return (yield from tensors_of(cache, space)).selection(layout)


def one_call(call: Call[T]) -> Flow[T]:
    """The flow of a single call."""
    result: T = yield call
    return result
