"""TensorFlow.js: a ``model.json`` that lists the weights in its files of bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np

from studies.real.errors import InvalidFile
from studies.real.readers.cursor import Cursor, Tensor, Tensors, shaped

__all__ = ["read_tfjs"]

_TYPES: Final = {
    "float32": "<f4",
    "float16": "<f2",
    "int32": "<i4",
    "uint16": "<u2",
    "uint8": "u1",
    "bool": "u1",
}


def read_tfjs(model: bytes, files: Mapping[str, bytes]) -> Tensors:
    """The floating weights of a model, by name.

    Args:
        model: its ``model.json``.
        files: the bytes of the files that it names.

    Raises:
        InvalidFile: it is not a model, a file is missing, or the two do not belong together.
    """
    found: Tensors = {}
    unread = dict(files)
    try:
        for group in json.loads(model)["weightsManifest"]:
            parts = [unread.pop(path) for path in group["paths"]]
            reading = Cursor(b"".join(parts))
            for weight in group["weights"]:
                _read_weight(weight, reading, found)
            if reading.left:
                raise InvalidFile(f"{reading.left:,} bytes belong to no weight")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidFile(f"not a model of TensorFlow.js: {error!r:.80}") from None
    except InvalidFile:
        raise
    except ValueError as error:  # not JSON, or not a text
        raise InvalidFile(f"not JSON: {error!s:.80}") from None
    if not found:
        raise InvalidFile("it has no weights")
    return found


def _read_weight(weight: Mapping[str, Any], reading: Cursor, found: Tensors) -> None:
    name, shape, kind = weight["name"], weight["shape"], weight["dtype"]
    if not isinstance(name, str) or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape):
        raise InvalidFile(f"{name!r:.40}: not a name and a shape")
    quantised = weight.get("quantization")
    stored = _TYPES[quantised["dtype"] if quantised else kind]
    values = reading.array(stored, prod(shape))
    if kind == "float32":
        found[name] = shaped(_restored(values, quantised), shape, name)


def _restored(values: Tensor, quantised: Mapping[str, Any] | None) -> Tensor:
    """Values as they were before they were made small."""
    if quantised is None or "scale" not in quantised:
        return values
    scale, least = quantised["scale"], quantised["min"]
    if not all(type(x) in (int, float) and abs(x) < 1e30 for x in (scale, least)):
        raise InvalidFile("a quantisation that is not two numbers")
    with np.errstate(over="ignore"):
        return values * np.float32(scale) + np.float32(least)
