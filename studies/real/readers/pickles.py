"""PyTorch's archives of pickles: tensors and containers, and nothing else.

A pickle is a program that may call anything. It is not unpickled: the few operations that tensors
in containers need are carried out here, on a stack. No class of Python is ever looked up. A pickle
that asks for one is an error that names it.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from studies.real.errors import InvalidFile
from studies.real.readers.cursor import Cursor, Tensors

__all__ = ["read_pickle", "run_pickle", "tensors_at"]

_MAX_DIMENSIONS: Final = 12
_MAX_NAME: Final = 200
_MAX_EXPANSION: Final = 16
"""The factor by which a compressed archive may grow; PyTorch's are not compressed."""
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
"""The errors that :mod:`zipfile` raises for an archive that is not whole."""

_STORAGES: Final = {
    "torch.FloatStorage": "<f4",
    "torch.DoubleStorage": "<f8",
    "torch.HalfStorage": "<f2",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
}
_TENSOR: Final = "torch._utils._rebuild_tensor_v2"
_DICT: Final = "collections.OrderedDict"
_MARK: Final = object()

_Array = npt.NDArray[Any]


class _Global:
    """One of the few names that a pickle of tensors may ask for."""

    def __init__(self, name: str) -> None:
        if name not in (*_STORAGES, _TENSOR, _DICT):
            raise InvalidFile(f"it asks for {name[:80]}, which is not a tensor")
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
    storages = {name[5:]: data for name, data in members.items() if name.startswith("data/")}
    return run_pickle(members["data.pkl"], storages)


def run_pickle(program: bytes, storages: Mapping[str, bytes]) -> object:
    """The object that a pickle makes.

    Args:
        program: the pickle.
        storages: the bytes of its tensors, by key.

    Raises:
        InvalidFile: it is damaged, or asks for anything but tensors and containers.
    """
    return _Machine(program, storages).run()


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


class _Machine:
    """The stack machine of a pickle.

    Args:
        program: the operations.
        storages: the bytes of tensors, by key.
    """

    def __init__(self, program: bytes, storages: Mapping[str, bytes]) -> None:
        self._program = Cursor(program)
        self._storages = storages
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> object:
        try:
            while (code := self._program.number(1)) != _STOP:
                step = _STEPS.get(code)
                if step is None:
                    raise InvalidFile(
                        f"it asks for the operation {code:#04x}, which no tensor needs"
                    )
                step(self)
            return self._stack.pop()
        except InvalidFile:
            raise
        except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
            raise InvalidFile(f"a damaged pickle: {error!s:.80}") from None

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._program.take(size), "little", signed=signed)

    def floating(self) -> float:
        found: float = struct.unpack(">d", self._program.take(8))[0]
        return found

    def text(self) -> str:
        return bytes(self._program.take(self.number(4))).decode()

    def memoize(self, at: int) -> None:
        self._memo[at] = self._stack[-1]

    def recall(self, at: int) -> None:
        self.push(self._memo[at])

    def name(self) -> None:
        """A function or a type, of the few that tensors need."""
        lines = [self._line(), self._line()]
        self.push(_Global(".".join(lines)))

    def _line(self) -> str:
        found = bytearray()
        while len(found) < _MAX_NAME and (byte := self._program.number(1)) != 0x0A:
            found.append(byte)
        return found.decode("utf-8", "replace")

    def marked(self) -> list[Any]:
        """All above the last mark, taken off the stack."""
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at] is _MARK:
                found = self._stack[at + 1 :]
                del self._stack[at:]
                return found
        raise InvalidFile("a damaged pickle: a mark is missing")

    def last(self, count: int) -> list[Any]:
        """The last values, taken off the stack."""
        return [self._stack.pop() for _ in range(count)][::-1]

    def append(self, values: list[Any]) -> None:
        """To the list on the stack."""
        found = self._stack[-1]
        if not isinstance(found, list):
            raise InvalidFile("a damaged pickle: no list to append to")
        found.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Set items of the dictionary on the stack."""
        found = self._stack[-1]
        if not isinstance(found, dict) or len(values) % 2:
            raise InvalidFile("a damaged pickle: no dictionary to set items of")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | int):
                raise InvalidFile(f"a key that is not a text or number: {type(key).__name__}")
            found[key] = value

    def reduce(self) -> None:
        """A call, of the two functions that tensors need."""
        called, arguments = self.last(2)
        if not isinstance(called, _Global) or not isinstance(arguments, tuple):
            raise InvalidFile("it calls what it made itself")
        if called.name == _TENSOR:
            self.push(_tensor(*arguments[:4]))
        elif called.name == _DICT and not arguments:
            self.push({})
        else:
            raise InvalidFile(f"it calls {called.name} with {len(arguments)} arguments")

    def storage(self) -> None:
        """The values that a persistent id names: ``("storage", type, key, location, count)``."""
        what, kind, key, _, count = self._stack.pop()
        if what != "storage" or not isinstance(kind, _Global) or kind.name not in _STORAGES:
            raise InvalidFile("a persistent id that is not a storage")
        data = self._storages.get(key) if isinstance(key, str) else None
        dtype = np.dtype(_STORAGES[kind.name])
        if data is None or type(count) is not int or len(data) != count * dtype.itemsize:
            raise InvalidFile("a storage is missing, or of another size")
        self.push(np.frombuffer(data, dtype))

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
    if len(shape) > _MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in numbers):
        raise InvalidFile("a tensor whose shape is not of numbers")
    size = int(np.prod([*shape], dtype=object)) if shape else 1
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if size > storage.size or (size and last >= storage.size):
        raise InvalidFile(f"a tensor of {size:,} values leaves its storage of {storage.size:,}")
    if not size:
        return np.empty(shape, storage.dtype)
    steps = [stride * storage.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps, writeable=False)


_STOP: Final = ord(".")
_STEPS: Final[dict[int, Callable[[_Machine], object]]] = {
    0x80: lambda machine: machine.number(1),  # the protocol
    0x95: lambda machine: machine.number(8),  # the length of a frame
    ord("}"): lambda machine: machine.push({}),
    ord("]"): lambda machine: machine.push([]),
    ord(")"): lambda machine: machine.push(()),
    ord("N"): lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    ord("("): lambda machine: machine.push(_MARK),
    ord("J"): lambda machine: machine.push(machine.number(4, signed=True)),
    ord("K"): lambda machine: machine.push(machine.number(1)),
    ord("M"): lambda machine: machine.push(machine.number(2)),
    0x8A: lambda machine: machine.push(machine.number(machine.number(1), signed=True)),
    ord("G"): lambda machine: machine.push(machine.floating()),
    ord("X"): lambda machine: machine.push(machine.text()),
    ord("q"): lambda machine: machine.memoize(machine.number(1)),
    ord("r"): lambda machine: machine.memoize(machine.number(4)),
    ord("h"): lambda machine: machine.recall(machine.number(1)),
    ord("j"): lambda machine: machine.recall(machine.number(4)),
    ord("c"): _Machine.name,
    ord("t"): lambda machine: machine.push(tuple(machine.marked())),
    0x85: lambda machine: machine.push(tuple(machine.last(1))),
    0x86: lambda machine: machine.push(tuple(machine.last(2))),
    0x87: lambda machine: machine.push(tuple(machine.last(3))),
    ord("a"): lambda machine: machine.append(machine.last(1)),
    ord("e"): lambda machine: machine.append(machine.marked()),
    ord("s"): lambda machine: machine.set_items(machine.last(2)),
    ord("u"): lambda machine: machine.set_items(machine.marked()),
    ord("R"): _Machine.reduce,
    ord("Q"): _Machine.storage,
    ord("b"): _Machine.discard,
}
"""By the code of an operation; :mod:`pickletools` describes them all."""
