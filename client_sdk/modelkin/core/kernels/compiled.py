"""Compilation of the loops of ``fast``, and the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])
A = TypeVar("A", bound=npt.NDArray[Any])


def compiled(function: F) -> F:
    """Compile a function with numba; cached on disk if a folder for it is writable."""
    compiler: Any = numba.njit
    try:
        loop: F = compiler(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:  # no folder to keep it in
        loop = compiler(function, nogil=True, error_model="numpy")
    return loop


def read_only(array: A) -> A:
    """The array as the one type that a loop is compiled for: contiguous, aligned, read-only."""
    plain: Any = array
    if not (plain.flags.c_contiguous and plain.flags.aligned):  # require() takes microseconds
        plain = np.require(array, requirements=["C", "A"])
    if plain.flags.writeable:
        plain = plain.view()
        plain.flags.writeable = False
    return plain  # type: ignore[no-any-return]


def _typed_popcount(_context: Any, _word: Any) -> Any:
    """The processor's own bit count of a uint64, which numba does not offer."""

    def emit_call(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), emit_call


popcount: Any = intrinsic(_typed_popcount)


def _typed_prefetch(_context: Any, _address: Any) -> Any:
    """Prefetch the cache line of an address that will be read soon; any address is safe."""

    def emit_call(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        insert: Any = cgutils.get_or_insert_function
        function = insert(builder.module, kind, "llvm.prefetch.p0i8")
        # To read, to be kept, data.
        how = [ir.Constant(number, value) for value in (0, 3, 1)]
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *how])
        return context.get_dummy_value()

    return types.void(types.uintp), emit_call


prefetch: Any = intrinsic(_typed_prefetch)


@compiled
def line_aligned(buffer: Any) -> Any:
    """The array from its first cache line on: vector loads across two lines take twice as long.

    Args:
        buffer: contiguous, at least 64 bytes longer than needed.
    """
    return buffer[(-buffer.ctypes.data % 64) // buffer.itemsize :]
