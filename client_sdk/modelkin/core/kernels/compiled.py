"""Compiled loops: machine code from a folder, called without importing numba.

numba takes a third of a second and 60 MB to import, and only its compiler is needed here. So a
process of its own compiles a loop for some types, see ``compiling``, and ``machine_code`` keeps and
loads the result. Where that is impossible, numba compiles in this process.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels import machine_code

__all__ = [
    "Intrinsic",
    "Loop",
    "between64",
    "compiled",
    "popcount",
    "prefetch",
    "read_only",
    "scratch",
    "trailing_zeros",
]

A = TypeVar("A", bound=npt.NDArray[Any])
Variant = Callable[..., Any]

_PLAIN = 0x101
"""C-contiguous and aligned, as in ``PyArrayObject.flags``."""
_HEAD = object.__basicsize__
"""Bytes before the first field of an array object, which is the address of its data."""
_word_at = ctypes.c_void_p.from_address


class Loop:
    """A function of arrays and numbers, compiled for each combination of their types once.

    It must not allocate: scratch arrays are arguments, see :func:`scratch`.

    Args:
        function: of C-contiguous, aligned arrays and integers; returns an integer or nothing.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.function = function
        self._variants: dict[tuple[Any, ...], Variant] = {}

    @property
    def signatures(self) -> list[tuple[Any, ...]]:
        """The types that it is ready for."""
        return list(self._variants)

    def __call__(self, *arguments: Any) -> Any:
        key: list[Any] = []
        values: list[Any] = []
        for each in arguments:
            if type(each) is np.ndarray:
                if each.flags.num & _PLAIN != _PLAIN:
                    raise TypeError(f"{self.function.__name__} takes contiguous, aligned arrays")
                key.append((each.dtype, each.ndim))
                values.append(_word_at(id(each) + _HEAD).value)
                values += each.shape
            else:
                key.append(type(each))
                values.append(operator.index(each))
        variant = self._variants.get(tuple(key))
        if variant is None:
            variant = self._variants[tuple(key)] = self._variant(arguments)
        return variant(arguments, values)

    def _variant(self, arguments: tuple[Any, ...]) -> Variant:
        types = [_type_of(each) for each in arguments]
        code = machine_code.find(self.function.__module__, self.function.__name__, types)
        return _interpreted(self) if code is None else _entered(code, types)


def _type_of(argument: Any) -> str:
    """Such as ``u4:1`` for a vector of uint32 and ``i8:0`` for an int."""
    array = np.asarray(argument)
    if not array.dtype.isnative:
        raise TypeError("loops take numbers in the byte order of the processor")
    return f"{array.dtype.str[1:]}:{array.ndim}"


def _entered(code: machine_code.Code, types: list[str]) -> Variant:
    """A caller of machine code by numba's convention: where to put the result, then an error."""
    native: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
    for dtype, _, dimensions in (each.partition(":") for each in types):
        if dimensions == "0":
            native.append(np.ctypeslib.as_ctypes_type(np.dtype(dtype)))
        else:
            native += [ctypes.c_void_p, *[ctypes.c_ssize_t] * int(dimensions)]
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *native)(code.address)
    number = getattr(ctypes, f"c_{code.result}", ctypes.c_void_p)
    error = ctypes.c_void_p()

    def call(_: Any, values: list[Any]) -> Any:
        result = number()
        if entry(ctypes.byref(result), ctypes.byref(error), *values):
            raise RuntimeError("a compiled loop failed")
        return result.value

    return call


def _interpreted(loop: Loop) -> Variant:
    """A caller of the loop as numba compiles it in this process."""
    from modelkin.core.kernels.compiling import jitted

    call = jitted(loop.function)
    return lambda arguments, _: call(*arguments)


class Intrinsic:
    """A processor's instruction that only compiled loops can use; ``compiling`` defines it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any) -> Any:
        raise NotImplementedError(f"{self.name} is for compiled loops")


popcount: Any = Intrinsic("popcount")
prefetch: Any = Intrinsic("prefetch")
trailing_zeros: Any = Intrinsic("trailing_zeros")
between64: Any = Intrinsic("between64")


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call, see :class:`Loop`; loops may call each other."""
    return Loop(function)


def read_only(array: A) -> A:
    """The array as loops take it: contiguous and aligned."""
    if array.flags.num & _PLAIN == _PLAIN:
        return array
    plain: A = np.require(array, requirements=["C", "A"])
    return plain


def scratch(size: int, dtype: Any) -> Any:
    """A vector that begins at a cache line: vector loads across two lines take twice as long."""
    buffer = np.empty(size + 64 // np.dtype(dtype).itemsize, dtype)
    first = -buffer.ctypes.data % 64 // buffer.itemsize
    return buffer[first : first + size]
