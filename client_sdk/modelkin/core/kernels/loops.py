"""The compiler of loops, and the instructions of processors that numba does not offer.

numba keeps what it has compiled in ``NUMBA_CACHE_DIR`` if that is set, else in ``__pycache__``
beside the source, else in the user's cache. It compiles a loop again once the loop's own file has
changed, but not once this one has: after a change here, delete what it keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar

import llvmlite.binding as llvm
import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import event
from numba.extending import intrinsic

from modelkin.core.kernels.writers import is_trusted

__all__ = [
    "NotKept",
    "between64",
    "compile_loop",
    "compiling_while",
    "popcount",
    "prefetch",
    "read_only",
    "scratch",
    "trailing_zeros",
    "widen",
]

A = TypeVar("A", bound=npt.NDArray[Any])

log = logging.getLogger(__name__)

_CONFIG: Any = numba.config


def widen(features: str) -> str:
    """Add the use of whole 512-bit registers to a processor's features, where it has these.

    On Intel's processors LLVM uses half of each by default.
    """
    return f"{features},-prefer-256-bit" if "+avx512f" in features.split(",") else features


_HOST: Final = llvm.get_host_cpu_features().flatten()
if _CONFIG.CPU_FEATURES is None and _HOST != widen(_HOST):
    _CONFIG.CPU_FEATURES = widen(_HOST)


def compile_loop(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call for some types of arguments, or load what was kept.

    Loops may call each other. They hold no lock on the interpreter. What is kept is code, so a
    folder that another user may write is not used.
    """
    compiler: Any = numba.njit(nogil=True, error_model="numpy")
    keeping: Any = numba.njit(nogil=True, error_model="numpy", cache=True)
    try:
        loop = keeping(function)
        if is_trusted(loop.stats.cache_path, function.__code__.co_filename):
            return loop
        say_that_none_are_kept(f"another user may write in {loop.stats.cache_path}")
    except (RuntimeError, OSError):  # there is no folder that can be written, or read
        say_that_none_are_kept("no folder can be written")
    return compiler(function)


@cache
def say_that_none_are_kept(why: str) -> None:
    log.warning(
        "each process compiles its own kernels, since %s: set NUMBA_CACHE_DIR to a folder of this "
        "user alone, with mode 0700",
        why,
    )


class NotKept(Exception):
    """A loop would have to be compiled."""


class _Gate(event.Listener):
    """A gate before the compiler, which is open while compiling is allowed.

    Args:
        allowed: asked before each loop is compiled.
    """

    def __init__(self, allowed: Callable[[], bool]) -> None:
        self._allowed = allowed

    def on_start(self, event: Any) -> None:
        if not self._allowed():
            raise NotKept(str(event.data["dispatcher"]))

    def on_end(self, event: Any) -> None: ...


@contextmanager
def compiling_while(allowed: Callable[[], bool]) -> Iterator[None]:
    """Raise :class:`NotKept` within for a loop that is not kept, where numba may not compile it."""
    with event.install_listener("numba:compile", _Gate(allowed)):
        yield


def read_only(array: A) -> A:
    """Return the array as loops take it: contiguous, aligned, unwritable."""
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = np.require(array, requirements=["C", "A"])  # a copy
    view = array.view()
    view.flags.writeable = False
    return view


def scratch(size: int, dtype: Any) -> Any:
    """A vector that begins at a cache line: vector loads across two lines take twice as long."""
    buffer = np.empty(size + 64 // np.dtype(dtype).itemsize, dtype)
    first = -buffer.ctypes.data % 64 // buffer.itemsize
    return buffer[first : first + size]


def _typed_popcount(_context: Any, _word: Any) -> Any:
    """The processor's own bit count of a uint64."""

    def emit_call(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), emit_call


def _typed_trailing_zeros(_context: Any, _word: Any) -> Any:
    """How many low bits of a uint64 are zero; 64 for zero itself."""

    def emit_call(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), emit_call


def _typed_prefetch(_context: Any, _address: Any) -> Any:
    """Prefetch the cache line of an address that will be read soon; any address is safe."""

    def emit_call(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        # To read, to be kept, data.
        how = [ir.Constant(number, value) for value in (0, 3, 1)]
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *how])
        return context.get_dummy_value()

    return types.void(types.uintp), emit_call


def _typed_between64(_context: Any, _address: Any, _least: Any, _most: Any) -> Any:
    """Compare 64 int32 from an address on with two bounds: one bit each for those between."""

    def emit_call(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        number, place = ir.IntType(32), ir.VectorType(ir.IntType(32), 64)
        none = ir.Constant(place, ir.Undefined)

        def all_of(value: Any) -> Any:
            first = builder.insert_element(none, value, ir.Constant(number, 0))
            return builder.shuffle_vector(first, none, ir.Constant(place, [0] * 64))

        values = builder.load(builder.inttoptr(arguments[0], place.as_pointer()))
        values.align = 4
        above = builder.icmp_signed(">=", values, all_of(arguments[1]))
        below = builder.icmp_signed("<=", values, all_of(arguments[2]))
        return builder.bitcast(builder.and_(above, below), ir.IntType(64))

    return types.uint64(types.uint64, types.int32, types.int32), emit_call


popcount: Any = intrinsic(_typed_popcount)
trailing_zeros: Any = intrinsic(_typed_trailing_zeros)
prefetch: Any = intrinsic(_typed_prefetch)
between64: Any = intrinsic(_typed_between64)
