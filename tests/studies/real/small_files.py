"""Small files of each format that is read, made here byte by byte."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

__all__ = [
    "gates",
    "keras",
    "message",
    "model",
    "ncnn",
    "node",
    "pth",
    "tensor",
    "tfjs",
    "torch_archive",
]

Array = npt.NDArray[np.float32]


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """A message of Protocol Buffers: numbers of fields, and numbers or bytes."""
    out = b""
    for field, value in fields:
        if isinstance(value, int):
            out += _varint(field << 3) + _varint(value)
        else:
            out += _varint(field << 3 | 2) + _varint(len(value)) + value
    return out


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def tensor(name: str, values: Array, kind: int = 1) -> bytes:
    """A tensor of ONNX."""
    dims = [(1, size) for size in values.shape]
    return message(*dims, (2, kind), (8, name.encode()), (9, values.tobytes()))


def node(kind: str, inputs: Sequence[str] = (), *attributes: tuple[str, int, bytes]) -> bytes:
    """A node of ONNX; attributes are names, fields and messages."""
    inner = [(5, message((1, name.encode()), (field, value))) for name, field, value in attributes]
    return message(
        *((1, name.encode()) for name in inputs), (2, b"out"), (4, kind.encode()), *inner
    )


def model(*parts: tuple[int, bytes]) -> bytes:
    """A model of ONNX; parts are nodes (1) and initialisers (5) of its graph."""
    return message((1, 8), (7, message(*parts)))


def gates(values: Array, axis: int = 1) -> Array:
    """Gates in the order of ONNX (input, output, forget, cell), from PyTorch's."""
    i, f, g, o = np.split(values, 4, axis)
    return np.concatenate([i, o, f, g], axis)


def keras(datasets: Mapping[str, Array]) -> bytes:
    """An HDF5 file of one group, in the version that Keras writes."""
    out = bytearray(96)
    names = b"\0" * 8
    entries = b""
    for name, values in sorted(datasets.items()):
        data = len(out)
        out += values.tobytes()
        shape = struct.pack("<BBBBI", 1, values.ndim, 0, 0, 0)
        shape += b"".join(struct.pack("<Q", size) for size in values.shape)
        kind = struct.pack("<B3sI", 0x11, b"\x20\x1f\0", 4) + bytes(12)
        layout = struct.pack("<BBQQ", 3, 1, data, values.nbytes) + bytes(6)
        entries += struct.pack("<QQ", len(names), _header(out, (1, shape), (3, kind), (8, layout)))
        entries += bytes(24)
        names += name.encode() + b"\0"
    heap_data = _put(out, names)
    heap = _put(out, b"HEAP" + bytes(4) + struct.pack("<QQQ", len(names), 1, heap_data))
    symbols = _put(out, b"SNOD\x01\0" + struct.pack("<H", len(datasets)) + entries)
    tree = _put(out, b"TREE\0\0" + struct.pack("<HQQQQ", 1, 2**64 - 1, 2**64 - 1, 0, symbols))
    root = _header(out, (0x11, struct.pack("<QQ", tree, heap)))
    out[:8] = b"\x89HDF\r\n\x1a\n"
    out[13:15] = b"\x08\x08"
    out[64:72] = struct.pack("<Q", root)
    return bytes(out)


def _put(out: bytearray, data: bytes) -> int:
    at = len(out)
    out += data
    return at


def _header(out: bytearray, *messages: tuple[int, bytes]) -> int:
    body = b"".join(struct.pack("<HHI", kind, len(data), 0) + data for kind, data in messages)
    return _put(out, struct.pack("<BBHIII", 1, 0, len(messages), 1, len(body), 0) + body)


def ncnn(values: Array, biases: Array) -> tuple[bytes, bytes]:
    """A network of a convolution in half precision, slopes, and a linear layer."""
    out, count = biases.size, values.size
    param = (
        "7767517\n4 4\n"
        "Input data 0 1 data\n"
        f"Convolution first 1 1 data a 0={out} 1=1 5=1 6={count}\n"
        f"PReLU second 1 1 a b 0={out}\n"
        f"InnerProduct third 1 1 b c 0={out} 1=0 2={count}\n"
    )
    half = values.astype("<f2").tobytes()
    weights = struct.pack("<I", 0x01306B47) + half + bytes(-len(half) % 4)
    weights += biases.tobytes() * 2 + bytes(4) + values.tobytes()
    return param.encode(), weights


def tfjs(values: Array) -> tuple[bytes, dict[str, bytes]]:
    """A model of TensorFlow.js: a weight of bytes in two files, and one that was made small."""
    weights = [
        {"name": "first/kernel", "shape": [*values.shape], "dtype": "float32"},
        {
            "name": "second/kernel",
            "shape": [4],
            "dtype": "float32",
            "quantization": {"dtype": "uint8", "scale": 0.5, "min": -1.0},
        },
        {"name": "steps", "shape": [], "dtype": "int32"},
    ]
    manifest = [{"paths": ["a.bin", "b.bin"], "weights": weights}]
    data = values.tobytes() + bytes([0, 1, 2, 4]) + struct.pack("<i", 7)
    whole = json.dumps({"format": "layers-model", "weightsManifest": manifest})
    return whole.encode(), {"a.bin": data[:5], "b.bin": data[5:]}


def torch_archive(program: bytes, **storages: bytes) -> bytes:
    """An archive of a pickle as PyTorch has it; names of storages are ``_0``, ``_1`` and so on."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("model/data.pkl", program)
        for key, data in storages.items():
            archive.writestr(f"model/data/{key.lstrip('_')}", data)
    return out.getvalue()


def pth() -> bytes:
    """An archive of PyTorch with two tensors, one of which is transposed."""
    out = io.BytesIO()
    state = OrderedDict(w=torch.arange(6.0).reshape(2, 3).t(), b=torch.ones(2, dtype=torch.float64))
    torch.save({"model": {"state_dict": state, "epoch": 3}, "rates": [0.5, None, (1, 2)]}, out)
    return out.getvalue()
