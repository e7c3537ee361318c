"""ONNX: the initialisers and constants of a model, those of nested graphs among them.

ONNX is Protocol Buffers. The few fields that weights need are read here, with a bound on the depth,
as messages of files that are not trusted. Gates of an LSTM come in the order of PyTorch.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from typing import Final

import numpy as np

from studies.real.errors import InvalidFile
from studies.real.readers.cursor import Cursor, Tensor, Tensors, floats, shaped

__all__ = ["read_onnx"]

_MAX_DEPTH: Final = 12
_TYPES: Final = {1: "<f4", 10: "<f2", 11: "<f8"}
"""TensorProto.DataType to numpy's; other types are not weights."""
_VALUES: Final = {1: 4, 11: 10}
"""TensorProto.DataType to the field that has values where ``raw_data`` does not."""
_LSTM_WEIGHTS: Final = (1, 2, 3)
"""The inputs W, R and B."""

_Message = memoryview
_Scope = ChainMap[str, str]


def read_onnx(data: bytes) -> Tensors:
    """The floating tensors of a model, by their path of nested graphs and name.

    Raises:
        InvalidFile: it is not ONNX, or its weights are in another file.
    """
    found: Tensors = {}
    graphs = [value for field, value in _fields(memoryview(data)) if field == 7]
    for graph in graphs:
        _read_graph(_bytes(graph), "", ChainMap(), found, 0)
    if not found:
        raise InvalidFile("no graph with weights: it is not an ONNX model")
    return found


def _read_graph(graph: _Message, path: str, outer: _Scope, found: Tensors, depth: int) -> None:
    """Add the tensors of a graph; ``outer`` has the full names that an inner graph can use."""
    if depth > _MAX_DEPTH:
        raise InvalidFile(f"graphs are nested more than {_MAX_DEPTH} deep")
    scope = outer.new_child()
    nodes = []
    for field, value in _fields(graph):
        if field == 5:
            _add(found, scope, path, *_tensor(_bytes(value)))
        elif field == 1:
            nodes.append(_bytes(value))
    for node in nodes:
        _read_node(node, path, scope, found, depth)


def _read_node(node: _Message, path: str, scope: _Scope, found: Tensors, depth: int) -> None:
    inputs, outputs, kind, attributes = [], [], "", []
    for field, value in _fields(node):
        if field == 1:
            inputs.append(_text(value))
        elif field == 2:
            outputs.append(_text(value))
        elif field == 4:
            kind = _text(value)
        elif field == 5:
            attributes.append(_bytes(value))
    for attribute in attributes:
        name = "".join(_text(value) for field, value in _fields(attribute) if field == 1)
        for field, value in _fields(attribute):
            if field == 5:
                _, tensor = _tensor(_bytes(value))
                _add(found, scope, path, outputs[0] if outputs else name, tensor)
            elif field in (6, 11):
                inner = f"{path}{kind}.{name}/"
                _read_graph(_bytes(value), inner, scope, found, depth + 1)
    if kind == "LSTM":
        for at in _LSTM_WEIGHTS:
            full = scope.get(inputs[at]) if at < len(inputs) else None
            if full is not None:
                found[full] = _gates_as_in_torch(found[full], full)


def _add(found: Tensors, scope: _Scope, path: str, name: str, tensor: Tensor | None) -> None:
    if tensor is None:
        return
    full = path + name
    while full in found:  # two constants of one name are in different branches
        full += f"@{len(found)}"
    found[full] = tensor
    scope[name] = full


def _gates_as_in_torch(tensor: Tensor, name: str) -> Tensor:
    """ONNX has input, output, forget and cell; PyTorch input, forget, cell and output."""
    blocks = 8 if tensor.ndim == 2 else 4
    if tensor.ndim not in (2, 3) or tensor.shape[1] % blocks:
        raise InvalidFile(f"{name}: {tensor.shape} are not the weights of an LSTM")
    parts = np.split(tensor, blocks, axis=1)
    order = [at + gate for at in range(0, blocks, 4) for gate in (0, 2, 3, 1)]
    return np.concatenate([parts[number] for number in order], axis=1)


def _tensor(message: _Message) -> tuple[str, Tensor | None]:
    """The name of a tensor, and its values; None where they are not floating."""
    name, kind, shape, raw, listed = "", 0, [], b"", []
    for field, value in _fields(message):
        if field == 1:
            shape += _numbers(value)
        elif field == 2:
            kind = _number(value)
        elif field == 8:
            name = _text(value)
        elif field == 9:
            raw = bytes(_bytes(value))
        elif field == _VALUES.get(kind):
            listed.append(value)
        elif field == 14 and value == 1:
            raise InvalidFile(f"{name}: its values are in another file")
    if kind not in _TYPES:
        return name, None
    values = raw or b"".join(_fixed(value, kind) for value in listed)
    return name, shaped(floats(values, _TYPES[kind]), shape, name)


def _fixed(value: int | _Message, kind: int) -> bytes:
    """A packed list of numbers, or one of them."""
    if isinstance(value, int):
        return value.to_bytes(8 if kind == 11 else 4, "little")
    return bytes(value)


def _fields(message: _Message) -> Iterator[tuple[int, int | _Message]]:
    """Numbers and values of a message's fields, in their order."""
    reading = Cursor(message)
    while reading.left:
        key = _varint(reading)
        field, wire = key >> 3, key & 7
        if wire == 0:
            yield field, _varint(reading)
        elif wire == 1:
            yield field, reading.number(8)
        elif wire == 2:
            yield field, reading.take(_varint(reading))
        elif wire == 5:
            yield field, reading.number(4)
        else:
            raise InvalidFile(f"a field of the unknown wire type {wire} at {reading.at:,}")


def _varint(reading: Cursor) -> int:
    found = 0
    for at in range(0, 70, 7):
        byte = reading.number(1)
        found |= (byte & 0x7F) << at
        if byte < 0x80:
            return found & 0xFFFF_FFFF_FFFF_FFFF
    raise InvalidFile(f"a number of more than ten bytes before {reading.at:,}")


def _numbers(value: int | _Message) -> list[int]:
    """A packed list of numbers, or one of them."""
    if isinstance(value, int):
        return [value]
    reading, found = Cursor(value), []
    while reading.left:
        found.append(_varint(reading))
    return found


def _number(value: int | _Message) -> int:
    if not isinstance(value, int):
        raise InvalidFile("bytes where a number is expected")
    return value


def _bytes(value: int | _Message) -> _Message:
    if isinstance(value, int):
        raise InvalidFile("a number where bytes are expected")
    return value


def _text(value: int | _Message) -> str:
    return bytes(_bytes(value)).decode("utf-8", "replace")
