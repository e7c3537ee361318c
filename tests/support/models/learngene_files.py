"""Files of learngenes for tests, and the manifests that state them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["COMMIT", "REFERENCE", "gene", "manifest_of", "safetensors_of"]

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REFERENCE = {
    "kind": "huggingface",
    "url": "https://huggingface.co",
    "repo": "org/start",
    "revision": COMMIT,
    "file": "gene.safetensors",
}


def safetensors_of(tensors: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A safetensors file, written by hand: the service needs no library for it, nor does this."""
    header, values = dict[str, Any](), b""
    for name, array in tensors.items():
        data = array.tobytes()
        header[name] = {
            "dtype": {"f4": "F32", "f2": "F16", "f8": "F64", "i8": "I64"}[array.dtype.str[1:]],
            "shape": list(array.shape),
            "data_offsets": [len(values), len(values) + len(data)],
        }
        values += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + values


def gene(seed: int = 0, **shapes: tuple[int, ...]) -> bytes:
    """A file of two layers, or of the given tensors, with drawn values."""
    rng = np.random.default_rng(seed)
    wanted = shapes or {"conv.weight": (4, 1, 3, 3), "conv.bias": (4,)}
    return safetensors_of(
        {name: rng.normal(size=shape).astype(np.float32) for name, shape in wanted.items()}
    )


def manifest_of(data: bytes, **more: Any) -> dict[str, Any]:
    """The manifest of a file, with a reference."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return {
        "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "bytes": len(data),
        "tensors": [
            {"name": name, "dtype": fields["dtype"], "shape": fields["shape"]}
            for name, fields in header.items()
        ],
        "reference": REFERENCE,
        **more,
    }
