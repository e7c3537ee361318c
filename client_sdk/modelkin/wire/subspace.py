"""Data subspaces by media type: the native format, a basis as ``.npy``, and JSON for small ones."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs.checks import Payload
from modelkin.core.subspaces.subspace import CONSTANT, Block, Subspace
from modelkin.errors import InvalidSubspace, PayloadTooLarge, UnsupportedMediaType
from modelkin.wire.types import JSON, NPY, SUBSPACE

__all__ = [
    "SUBSPACE_FORMATS",
    "SUBSPACE_TYPES",
    "dump_subspace",
    "load_subspace",
    "subspace_from_json",
    "subspace_to_json",
]

_MAX_NPY_HEADER: Final = 4096
"""Bytes of a header that are read."""
_NPY_START: Final = re.compile(
    rb"\x93NUMPY(?:\x01\x00(?P<length>..)|[\x02\x03]\x00(?P<longer>....))"
    rb"\{'descr': *'(?P<dtype>[<>=]?f[248])', *'fortran_order': *(?P<fortran>True|False), *"
    rb"'shape': *\((?P<rows>\d{1,18}), *(?P<columns>\d{1,18}),?\),? *\}",
    re.DOTALL,
)
_FIELDS: Final = {"num_features", "constant", "weighting", "blocks", "epsilon", "delta"}


@dataclass(frozen=True, slots=True)
class SubspaceFormat:
    """A media type of a data subspace.

    Attributes:
        decode: makes a subspace of a body, the constant of a basis that does not state it, and the
            most columns to accept.
        encode: makes the body of a subspace.
    """

    decode: Callable[[Payload, float, int | None], Subspace]
    encode: Callable[[Subspace], bytes]


def load_subspace(
    data: Payload, media_type: str, *, constant: float = 0.0, max_columns: int | None = None
) -> Subspace:
    """A data subspace of a body, which is not trusted.

    Args:
        data: the whole body.
        media_type: one of :data:`SUBSPACE_TYPES`.
        constant: the constant of a basis as ``.npy``, which does not state it.
        max_columns: the most columns to accept; None for no limit.

    Raises:
        InvalidSubspace: what it holds does not make a subspace; says where and why.
        PayloadTooLarge: more columns than accepted.
        UnsupportedMediaType: another media type.
    """
    return _format(media_type).decode(data, constant, max_columns)


def dump_subspace(subspace: Subspace, media_type: str) -> bytes:
    """A data subspace as a body; as ``.npy`` the columns of all blocks, side by side.

    Raises:
        UnsupportedMediaType: another media type.
    """
    return _format(media_type).encode(subspace)


def subspace_to_json(subspace: Subspace) -> dict[str, Any]:
    """The document of a data subspace; columns are one a list."""
    return {
        "num_features": subspace.num_features,
        "constant": subspace.constant,
        "weighting": subspace.weighting,
        "epsilon": subspace.epsilon,
        "delta": subspace.delta,
        "blocks": [
            {
                "label": block.label,
                "weights": block.weights.tolist(),
                "columns": block.columns.tolist(),
            }
            for block in subspace.blocks
        ],
    }


def subspace_from_json(document: Any, *, max_columns: int | None = None) -> Subspace:
    """A data subspace of its document.

    Raises:
        InvalidSubspace, PayloadTooLarge: as :func:`load_subspace`.
    """
    if not isinstance(document, Mapping):
        raise InvalidSubspace("a subspace is a JSON object")
    unknown = sorted(set(document) - _FIELDS)
    if unknown:
        raise InvalidSubspace(f"a subspace has no field {unknown[0]!r}", field=unknown[0])
    blocks = document.get("blocks")
    if not isinstance(blocks, list):
        raise InvalidSubspace("blocks must be a list", field="blocks")
    read = tuple(_block(block, place) for place, block in enumerate(blocks))
    total = sum(block.weights.size for block in read)
    if max_columns is not None and total > max_columns:
        raise PayloadTooLarge(
            f"the subspace has {total} columns, at most {max_columns} are accepted"
        )
    numbers = {name: _number(document, name) for name in ("constant", "epsilon", "delta")}
    constant = numbers["constant"]
    return Subspace(
        document.get("num_features"),  # type: ignore[arg-type]
        CONSTANT if constant is None else constant,
        document.get("weighting", "spectrum"),
        read,
        numbers["epsilon"],
        numbers["delta"],
    )


def _number(document: Mapping[str, Any], name: str) -> float | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidSubspace(f"{name} must be a number, not {value!r}"[:200], field=name)
    try:
        return float(value)
    except OverflowError:
        raise InvalidSubspace(f"{name} is too large a number", field=name) from None


def _block(document: Any, place: int) -> Block:
    field = f"blocks[{place}]"
    if not isinstance(document, Mapping) or set(document) - {"label", "weights", "columns"}:
        raise InvalidSubspace(f"{field} has label, weights and columns", field=field)
    arrays = []
    for name, axes in (("columns", 2), ("weights", 1)):
        try:
            array = np.asarray(document.get(name), np.float64)
        except (ValueError, TypeError, OverflowError):
            array = np.empty(0)
        if array.ndim != axes or array.size == 0:
            what = "numbers" if axes == 1 else "lists of numbers of one length"
            raise InvalidSubspace(f"{field}.{name} must be a list of {what}", field=field)
        with np.errstate(over="ignore"):
            arrays.append(array.astype(np.float32))
    label = document.get("label")
    return Block(label, arrays[0], arrays[1])


def _read_npy(data: Payload, max_columns: int | None) -> npt.NDArray[Any]:
    """The matrix of an ``.npy`` file; its length is checked before anything is allocated.

    The header is matched, not parsed: numpy's own reader falls back to Python's tokenizer.
    """
    found = _NPY_START.match(bytes(data[:_MAX_NPY_HEADER]))
    if found is None:
        raise InvalidSubspace(
            "not a .npy file of a matrix of float16, float32 or float64, as numpy.save writes it"
        )
    field = "length" if found["length"] else "longer"
    start, length = found.end(field), int.from_bytes(found[field], "little")
    if found.end() > start + length:
        raise InvalidSubspace("the header of the .npy file is longer than it says")
    rows, columns = int(found["rows"]), int(found["columns"])
    if not rows or not columns:
        raise InvalidSubspace(f"a basis has rows and columns, not {rows} x {columns}")
    if max_columns is not None and columns > max_columns:
        raise PayloadTooLarge(
            f"the basis has {columns} columns, at most {max_columns} are accepted"
        )
    dtype = np.dtype(found["dtype"].decode())
    expected = start + length + rows * columns * dtype.itemsize
    if len(data) != expected:
        raise InvalidSubspace(f"the header makes a file of {expected} bytes, this has {len(data)}")
    values = np.frombuffer(data, dtype, rows * columns, start + length)
    if found["fortran"] == b"True":
        return values.reshape(columns, rows).T
    return values.reshape(rows, columns)


def _load_json(data: Payload, max_columns: int | None) -> Subspace:
    try:
        document = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise InvalidSubspace(f"the body is not JSON: {error}") from None
    return subspace_from_json(document, max_columns=max_columns)


def _dump_npy(subspace: Subspace) -> bytes:
    file = io.BytesIO()
    columns = np.concatenate([block.columns for block in subspace.blocks]).T
    np.save(file, np.ascontiguousarray(columns), allow_pickle=False)
    return file.getvalue()


SUBSPACE_FORMATS: Final[Mapping[str, SubspaceFormat]] = {
    SUBSPACE: SubspaceFormat(
        lambda data, _, max_columns: Subspace.from_bytes(data, max_columns=max_columns),
        Subspace.to_bytes,
    ),
    NPY: SubspaceFormat(
        lambda data, constant, max_columns: Subspace.of_basis(
            _read_npy(data, max_columns), constant=constant
        ),
        _dump_npy,
    ),
    JSON: SubspaceFormat(
        lambda data, _, max_columns: _load_json(data, max_columns),
        lambda subspace: json.dumps(subspace_to_json(subspace)).encode(),
    ),
}
"""The media types of a data subspace, the preferred one first."""

SUBSPACE_TYPES: Final = tuple(SUBSPACE_FORMATS)


def _format(media_type: str) -> SubspaceFormat:
    if media_type not in SUBSPACE_FORMATS:
        raise UnsupportedMediaType(f"a subspace is one of {', '.join(SUBSPACE_TYPES)}")
    return SUBSPACE_FORMATS[media_type]
