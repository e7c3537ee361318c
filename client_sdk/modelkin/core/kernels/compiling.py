"""``python -m modelkin.core.kernels.compiling``: the compiler of loops, and the only use of numba.

It writes the machine code of one loop, or of all, to its standard output.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

from modelkin.core.kernels import compiled as loops
from modelkin.core.kernels import machine_code

__all__ = ["INTRINSICS", "compile_loop", "jitted", "main", "target"]


def _typed_popcount(_context: Any, _word: Any) -> Any:
    """The processor's own bit count of a uint64, which numba does not offer."""

    def emit_call(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), emit_call


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


def _typed_trailing_zeros(_context: Any, _word: Any) -> Any:
    """How many low bits of a uint64 are zero; 64 for zero itself."""

    def emit_call(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), emit_call


def _typed_between64(_context: Any, _address: Any, _least: Any, _most: Any) -> Any:
    """Which of the 64 int32 from an address on lie between two bounds, as bits from the lowest."""

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


INTRINSICS: dict[str, Any] = {
    "between64": intrinsic(_typed_between64),
    "trailing_zeros": intrinsic(_typed_trailing_zeros),
    "popcount": intrinsic(_typed_popcount),
    "prefetch": intrinsic(_typed_prefetch),
}


_NOTHING_TO_FREE = "define void @NRT_MemInfo_call_dtor(ptr %0) { ret void }"
"""What numba calls where the last reference to an array goes: here callers own all arrays."""


@cache
def jitted(function: Callable[..., Any]) -> Any:
    """A loop as a function of numba, and so the loops and the instructions that it uses."""
    plain: Any = function
    names = {**plain.__globals__}
    for name in plain.__code__.co_names:
        used = names.get(name)
        if isinstance(used, loops.Loop):
            names[name] = jitted(used.function)
        elif isinstance(used, loops.Intrinsic):
            names[name] = INTRINSICS[used.name]
    linked = FunctionType(plain.__code__, names, plain.__name__)
    linked.__module__ = plain.__module__
    return numba.njit(linked, nogil=True, error_model="numpy")


def compile_loop(function: Callable[..., Any], kinds: Sequence[str]) -> tuple[str, str, Any]:
    """The symbol of a loop's entry, the type of its result, and its module of LLVM.

    Raises:
        ValueError: the loop needs more than the machine code itself: it allocates or raises.
    """
    compiler: Any = numba.njit
    entry = compiler(
        _entry(function, kinds),
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )
    entry.compile(tuple(_native(kinds)))
    (made,) = entry.overloads.values()
    module = llvm.parse_assembly(made.library.get_llvm_str())
    module.link_in(llvm.parse_assembly(_NOTHING_TO_FREE))
    for needed in (*module.functions, *module.global_variables):
        if needed.is_declaration and not needed.name.startswith("llvm."):
            raise ValueError(f"{function.__name__} needs {needed.name}: give it its scratch arrays")
    return made.fndesc.llvm_func_name, str(made.signature.return_type), module


def target() -> Any:
    """LLVM's back end for the processor."""
    name, features = machine_code.processor()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=name, features=features, opt=3, codemodel="jitdefault", jit=True
    )


def _entry(function: Callable[..., Any], kinds: Sequence[str]) -> Any:
    """A function of addresses, lengths and numbers that calls the loop with arrays."""
    parameters, arguments = [], []
    for position, kind in enumerate(kinds):
        shape = [f"n{position}_{axis}" for axis in range(int(kind.partition(":")[2]))]
        parameters += [f"x{position}", *shape]
        arguments.append(f"carray(x{position}, ({''.join(f'{n},' for n in shape)}))")
        if not shape:
            arguments[-1] = f"x{position}"
    name = f"entry_{getattr(function, '__name__', '')}"
    names = {"loop": jitted(function), "carray": carray}
    source = f"def {name}({', '.join(parameters)}):\n    return loop({', '.join(arguments)})"
    exec(source, names)  # noqa: S102 (a line made of nothing but these names)
    return names[name]


def _native(kinds: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for dtype, _, dimensions in (kind.partition(":") for kind in kinds):
        number = numba.from_dtype(np.dtype(dtype))
        if dimensions == "0":
            found.append(number)
        else:
            pointer: Any = types.CPointer
            found += [pointer(number), *[types.intp] * int(dimensions)]
    return found


def main(arguments: list[str]) -> int:
    """Write the code of ``MODULE LOOP TYPES...``, by default of all that ``fast.warm`` calls."""
    output = sys.stdout.buffer

    def write(module: str, loop: str, types: Sequence[str]) -> machine_code.Code | None:
        function = getattr(importlib.import_module(module), loop).function
        symbol, result, loaded = compile_loop(function, types)
        code = target().emit_object(loaded)
        record = machine_code.record_of(module, loop, types, symbol, result, code)
        if not arguments:  # the process that asked for them may have ended before the last one
            machine_code.keep(machine_code.file_of(record), record)
        with suppress(BrokenPipeError):
            output.write(record)
        return machine_code.linked(record)

    if arguments:
        write(arguments[0], arguments[1], arguments[2:])
        return 0
    machine_code.find = write
    importlib.import_module("modelkin.core.kernels.fast").warm()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
