"""PyTorch's archives of pickles: tensors and containers, and nothing else.

A pickle is a program that may call anything. It is not unpickled: the few operations that tensors
in containers need are carried out here, on a stack. No class of Python is ever looked up. A pickle
that asks for one is an error that names it.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from studies.real.errors import InvalidFile
from studies.real.readers.cursor import Tensors

__all__ = ["read_pickle", "tensors_at"]

_MAX_DEPTH: Final = 12
_MAX_EXPANSION: Final = 16
"""Of a compressed archive; PyTorch's are not compressed."""
_DAMAGED: Final = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    KeyError,
    OverflowError,
)
"""What :mod:`zipfile` raises for an archive that is not whole."""

_STORAGES: Final = {
    "torch FloatStorage": "<f4",
    "torch DoubleStorage": "<f8",
    "torch HalfStorage": "<f2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
}
_TENSOR: Final = "torch._utils _rebuild_tensor_v2"
_DICT: Final = "collections OrderedDict"
_MARK: Final = object()

_Array = npt.NDArray[Any]


class _Global:
    """One of the few names that a pickle of tensors may ask for."""

    def __init__(self, name: str) -> None:
        if name not in (*_STORAGES, _TENSOR, _DICT):
            raise InvalidFile(f"it asks for {name.replace(' ', '.')[:80]}, which is not a tensor")
        self.name = name


def read_pickle(data: bytes) -> object:
    """Dictionaries, lists, tuples, numbers, texts and tensors of a ``.pth``.

    Raises:
        InvalidFile: it is not an archive of PyTorch, is damaged, or asks for anything else.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _members(archive, len(data))
    except _DAMAGED as error:
        raise InvalidFile(f"not an archive of PyTorch: {error!s:.80}") from None
    if members.get("byteorder", b"little") != b"little" or "data.pkl" not in members:
        raise InvalidFile("not an archive of PyTorch in little-endian order")
    return _Stack(members).run(members["data.pkl"])


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, bytes]:
    """All members without the name of their common folder."""
    whole = sum(info.file_size for info in archive.infolist())
    if whole > _MAX_EXPANSION * size:
        raise InvalidFile(f"{size:,} bytes that become {whole:,}")
    return {
        info.filename.partition("/")[2]: archive.open(info).read(info.file_size)
        for info in archive.infolist()
    }


def tensors_at(tree: object, *path: str | int) -> Tensors:
    """The floating tensors of a dictionary in a dictionary, and so on, by name.

    Raises:
        InvalidFile: there is no such dictionary.
    """
    for step in path:
        if not isinstance(tree, dict) or step not in tree:
            raise InvalidFile(f"it has no {'/'.join(map(str, path))}")
        tree = tree[step]
    if not isinstance(tree, dict):
        raise InvalidFile(f"{'/'.join(map(str, path))} is not a dictionary")
    return {
        str(name): np.ascontiguousarray(value, np.float32)
        for name, value in tree.items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
    }


class _Stack:
    """The machine of a pickle.

    Args:
        members: of the archive; storages are ``data/KEY``.
    """

    def __init__(self, members: dict[str, bytes]) -> None:
        self._members = members
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, program: bytes) -> object:
        try:
            for operation, argument, _ in pickletools.genops(program):
                if operation.name == "STOP":
                    return self._stack.pop()
                self._step(operation.name, argument)
        except InvalidFile:
            raise
        except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
            raise InvalidFile(f"a damaged pickle: {error!s:.80}") from None
        raise InvalidFile("a damaged pickle: it does not stop")

    def _step(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name]())
        elif name in _LITERALS:
            self._stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self._stack.append(self._memo[argument])
        elif name == "GLOBAL":
            self._stack.append(_Global(argument))
        elif name in _STEPS:
            _STEPS[name](self)
        elif name not in ("PROTO", "FRAME"):
            raise InvalidFile(f"it asks for the operation {name}, which no tensor needs")

    def marked(self) -> list[Any]:
        """All above the last mark, taken off the stack."""
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at] is _MARK:
                found = self._stack[at + 1 :]
                del self._stack[at:]
                return found
        raise InvalidFile("a damaged pickle: a mark is missing")

    def tuple_of(self, count: int) -> None:
        if len(self._stack) < count:
            raise InvalidFile("a damaged pickle: values are missing")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def tuple_of_marked(self) -> None:
        self._stack.append(tuple(self.marked()))

    def append(self, values: list[Any]) -> None:
        """To the list on the stack."""
        found = self._stack[-1]
        if not isinstance(found, list):
            raise InvalidFile("a damaged pickle: no list to append to")
        found.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Of the dictionary on the stack."""
        found = self._stack[-1]
        if not isinstance(found, dict) or len(values) % 2:
            raise InvalidFile("a damaged pickle: no dictionary to set items of")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | int):
                raise InvalidFile(f"a key that is not a text or number: {type(key).__name__}")
            found[key] = value

    def last(self, count: int) -> list[Any]:
        """The last values, taken off the stack."""
        return [self._stack.pop() for _ in range(count)][::-1]

    def reduce(self) -> None:
        """A call, of the two functions that tensors need."""
        called, arguments = self.last(2)
        if not isinstance(called, _Global) or not isinstance(arguments, tuple):
            raise InvalidFile("it calls what it made itself")
        if called.name == _TENSOR:
            self._stack.append(_tensor(*arguments[:4]))
        elif called.name == _DICT and not arguments:
            self._stack.append({})
        else:
            raise InvalidFile(f"it calls {called.name.replace(' ', '.')} with {len(arguments)}")

    def storage(self) -> None:
        """The values that a persistent id names: ``("storage", type, key, location, count)``."""
        what, kind, key, _, count = self._stack.pop()
        if what != "storage" or not isinstance(kind, _Global) or kind.name not in _STORAGES:
            raise InvalidFile("a persistent id that is not a storage")
        data = self._members.get(f"data/{key}") if isinstance(key, str) else None
        dtype = np.dtype(_STORAGES[kind.name])
        if data is None or type(count) is not int or len(data) != count * dtype.itemsize:
            raise InvalidFile("a storage is missing, or of another size")
        self._stack.append(np.frombuffer(data, dtype))

    def discard(self) -> None:
        """The attributes that a dictionary has besides its items."""
        state = self._stack.pop()
        if not isinstance(state, dict) or not isinstance(self._stack[-1], dict):
            raise InvalidFile("it sets the state of what is not a dictionary")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> _Array:
    """A view of a storage, which never leaves it and is not larger."""
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, np.ndarray) or storage.ndim != 1 or len(shape) != len(strides):
        raise InvalidFile("a tensor without a storage, or of two ranks")
    if len(shape) > _MAX_DEPTH or any(type(n) is not int or n < 0 for n in numbers):
        raise InvalidFile("a tensor whose shape is not of numbers")
    size = int(np.prod([*shape], dtype=object)) if shape else 1
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if size > storage.size or (size and last >= storage.size):
        raise InvalidFile(f"a tensor of {size:,} values leaves its storage of {storage.size:,}")
    if not size:
        return np.empty(shape, storage.dtype)
    steps = [stride * storage.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps, writeable=False)


_CONSTANTS: Final[dict[str, Callable[[], Any]]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "MARK": lambda: _MARK,
}
_LITERALS: Final = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"}
_STEPS: Final[dict[str, Callable[[_Stack], None]]] = {
    "TUPLE": _Stack.tuple_of_marked,
    "TUPLE1": lambda stack: stack.tuple_of(1),
    "TUPLE2": lambda stack: stack.tuple_of(2),
    "TUPLE3": lambda stack: stack.tuple_of(3),
    "APPEND": lambda stack: stack.append(stack.last(1)),
    "APPENDS": lambda stack: stack.append(stack.marked()),
    "SETITEM": lambda stack: stack.set_items(stack.last(2)),
    "SETITEMS": lambda stack: stack.set_items(stack.marked()),
    "REDUCE": _Stack.reduce,
    "BINPERSID": _Stack.storage,
    "BUILD": _Stack.discard,
}
