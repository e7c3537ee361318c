"""Keras: the weights of a model in HDF5, as h5py wrote it before 2024.

The HDF5 library is C and was made for files that are trusted, so the part of the format that Keras
uses is read here: version 0 of the superblock, groups in B-trees, and datasets in one piece
(HDF5 File Format Specification 3.0, sections II.A, III.A, IV.A).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Final

from studies.real.errors import InvalidFile
from studies.real.readers.cursor import Cursor, Tensor, Tensors, shaped

__all__ = ["read_keras"]

_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_ROOT_ENTRY_AT: Final = 56
_ENTRY_SIZE: Final = 40
_HEADER_SIZE: Final = 16
_MAX_DEPTH: Final = 12
_FLOATS: Final = {2: "f2", 4: "f4", 8: "f8"}
_WEIGHTS: Final = "model_weights/"

_DATASPACE, _DATATYPE, _LAYOUT, _CONTINUATION, _SYMBOLS = 0x1, 0x3, 0x8, 0x10, 0x11
_COMPACT, _CONTIGUOUS = 0, 1
_FLOATING: Final = 1


def read_keras(data: bytes) -> Tensors:
    """The floating weights of a model, by path; those of its optimiser are left out.

    Raises:
        InvalidFile: it is not HDF5, is damaged, or has parts that Keras does not write.
    """
    reading = Cursor(data)
    if bytes(reading.take(8)) != _SIGNATURE or reading.number(1) != 0:
        raise InvalidFile("the first bytes are not those of HDF5, superblock version 0")
    reading.at = 13
    if (reading.number(1), reading.number(1)) != (8, 8):
        raise InvalidFile("its addresses and lengths are not of 8 bytes")
    root = Cursor(data, _ROOT_ENTRY_AT + 8).number(8)
    found = _File(data).tensors(root)
    own = {name.removeprefix(_WEIGHTS): t for name, t in found.items() if _is_weight(name, found)}
    if not own:
        raise InvalidFile("no dataset of floating numbers")
    return own


def _is_weight(name: str, found: Tensors) -> bool:
    """A saved model has its weights in a group; a file of weights has them at its root."""
    if any(other.startswith(_WEIGHTS) for other in found):
        return name.startswith(_WEIGHTS)
    return not name.startswith("optimizer_weights/")


@dataclass(slots=True)
class _File:
    data: bytes
    read: set[int] = field(default_factory=set)
    """Addresses of what was read, since a damaged file may have circles."""

    def tensors(self, root: int) -> Tensors:
        found: Tensors = {}
        for name, tensor in self._objects(root, "", 0):
            found[name] = tensor
        return found

    def _objects(self, address: int, path: str, depth: int) -> Iterator[tuple[str, Tensor]]:
        """The datasets of an object, which is one or a group of some."""
        if depth > _MAX_DEPTH:
            raise InvalidFile(f"groups are nested more than {_MAX_DEPTH} deep")
        messages = self._messages(address)
        symbols = messages.get(_SYMBOLS)
        if symbols is not None:
            tree, heap = symbols.number(8), symbols.number(8)
            for name, child in self._links(tree, self._heap(heap), 0):
                yield from self._objects(child, f"{path}/{name}" if path else name, depth + 1)
        elif _LAYOUT in messages:
            tensor = self._dataset(messages, path)
            if tensor is not None:
                yield path, tensor

    def _once(self, address: int) -> Cursor:
        if address in self.read:
            raise InvalidFile(f"two links lead to {address:,}")
        self.read.add(address)
        return Cursor(self.data, address)

    def _messages(self, address: int) -> dict[int, Cursor]:
        """The messages of an object's header, by type; the first of each."""
        header = self._once(address)
        if header.number(1) != 1:
            raise InvalidFile(f"no object header of version 1 at {address:,}")
        header.at = address + 8
        size = header.number(4)
        header.at = address + _HEADER_SIZE
        found: dict[int, Cursor] = {}
        blocks = [header.take(size)]
        while blocks:
            block = Cursor(blocks.pop())
            while block.left >= 8:
                kind, length = block.number(2), block.number(2)
                block.take(4)
                message = Cursor(block.take(length))
                if kind == _CONTINUATION:
                    at = message.number(8)
                    blocks.append(self._once(at).take(message.number(8)))
                else:
                    found.setdefault(kind, message)
        return found

    def _heap(self, address: int) -> memoryview:
        """The names of a group's links."""
        heap = self._once(address)
        if bytes(heap.take(4)) != b"HEAP":
            raise InvalidFile(f"no heap at {address:,}")
        heap.at = address + 8
        size = heap.number(8)
        heap.number(8)
        return Cursor(self.data, heap.number(8)).take(size)

    def _links(self, address: int, names: memoryview, depth: int) -> Iterator[tuple[str, int]]:
        """Names and object headers of a group, from a node of its tree."""
        node = self._once(address)
        kind = bytes(node.take(4))
        if kind == b"SNOD":
            node.take(2)
            for _ in range(node.number(2)):
                entry = Cursor(node.take(_ENTRY_SIZE))
                yield _name(names, entry.number(8)), entry.number(8)
            return
        if kind != b"TREE" or node.number(1) != 0 or depth > _MAX_DEPTH:
            raise InvalidFile(f"no node of a group at {address:,}")
        node.take(1)
        count = node.number(2)
        node.take(16)
        for _ in range(count):
            node.take(8)
            yield from self._links(node.number(8), names, depth + 1)

    def _dataset(self, messages: dict[int, Cursor], name: str) -> Tensor | None:
        """A dataset of floating numbers; None of others."""
        if _DATATYPE not in messages or _DATASPACE not in messages:
            raise InvalidFile(f"{name}: a dataset without a type or a shape")
        kind = messages[_DATATYPE]
        if kind.number(1) & 0x0F != _FLOATING:
            return None
        order = ">" if kind.number(3) & 1 else "<"
        size = kind.number(4)
        if size not in _FLOATS:
            raise InvalidFile(f"{name}: floating numbers of {size} bytes")
        shape = _shape(messages[_DATASPACE], name)
        values = self._values(messages[_LAYOUT], name)
        return shaped(values.array(order + _FLOATS[size], prod(shape)), shape, name)

    def _values(self, layout: Cursor, name: str) -> Cursor:
        version, kind = layout.number(1), layout.number(1)
        if version == 3 and kind == _COMPACT:
            return Cursor(layout.take(layout.number(2)))
        if version == 3 and kind == _CONTIGUOUS:
            address, size = layout.number(8), layout.number(8)
            return Cursor(self._once(address).take(size)) if size else Cursor(b"")
        raise InvalidFile(f"{name}: in chunks, or packed, which Keras does not write")


def _shape(dataspace: Cursor, name: str) -> list[int]:
    version, rank = dataspace.number(1), dataspace.number(1)
    if version not in (1, 2):
        raise InvalidFile(f"{name}: a shape of the unknown version {version}")
    dataspace.take(6 if version == 1 else 2)
    return [dataspace.number(8) for _ in range(rank)]


def _name(names: memoryview, at: int) -> str:
    rest = bytes(names[at : at + 256])
    end = rest.find(b"\0")
    if end < 1:
        raise InvalidFile("a link without a name")
    return rest[:end].decode("utf-8", "replace")
