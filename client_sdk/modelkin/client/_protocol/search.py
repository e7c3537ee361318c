"""Calls that compare models: neighbours, overlaps and similarity matrices."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from modelkin._validation import check_model_name
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of
from modelkin.client._protocol.calls.decoding import UnknownFormError, reader
from modelkin.client._protocol.calls.requests import Query
from modelkin.client._transport.messages import Response
from modelkin.errors import InvalidName, InvalidParameter
from modelkin.types.search import Neighbors, Overlap, SimilarityMatrix
from modelkin.types.vocabulary import Measure, NeighborMeasure

__all__ = ["check_matrix_size", "neighbors", "overlap", "similarity"]

MAX_MATRIX_MODELS: Final = 1000

_NPY = "application/x-npy"


def neighbors(
    space: str,
    query: Query,
    k: int,
    min_similarity: float | None,
    method: str,
    tags: Iterable[str],
    min_kappa: float | None,
    compare: str | None = None,
    measure: NeighborMeasure = "similarity",
) -> Call[Neighbors]:
    """Finds the neighbours of a model."""
    params = [("k", str(k)), ("method", str(method)), *requests.tag_params(tags)]
    if min_similarity is not None:
        params.append(("min_similarity", str(min_similarity)))
    if min_kappa is not None:
        params.append(("min_kappa", str(min_kappa)))
    if compare is not None:
        params.append(("compare", str(compare)))
    if measure != "similarity":
        params.append(("measure", str(measure)))
    request = requests.query(f"{requests.space_path(space)}/neighbors", "model", query, params)
    return Call(request, reader(Neighbors))


def overlap(space: str, a: str, b: str, compare: str | None = None) -> Call[Overlap]:
    """Compares two models exactly."""
    pair = [("a", check_model_name(a, field="a")), ("b", check_model_name(b, field="b"))]
    if compare is not None:
        pair.append(("compare", str(compare)))
    request = requests.get(f"{requests.space_path(space)}/overlap", pair)
    return Call(request, reader(Overlap))


def check_matrix_size(space: str, models: int) -> None:
    """Raise :class:`InvalidParameter` if a space has more models than a matrix may have."""
    if models > MAX_MATRIX_MODELS:
        raise InvalidParameter(
            f"space {space!r} has more than {MAX_MATRIX_MODELS:,} models, the most of a matrix: "
            "give the names of some",
            field="models",
        )


def similarity(
    space: str, models: Iterable[str], measure: Measure, compare: str | None = None
) -> Call[SimilarityMatrix]:
    """Compares all pairs of some models."""
    if isinstance(models, str):
        raise InvalidName("models is one string; give a list of model names", field="models")
    names = tuple(
        check_model_name(name, field=f"models[{position}]") for position, name in enumerate(models)
    )
    path = f"{requests.space_path(space)}/similarity"
    params = [] if measure == "similarity" else [("measure", str(measure))]
    if compare is not None:
        params.append(("compare", str(compare)))
    request = requests.post(path, {"models": names}, _NPY, params)
    return Call(request, lambda r: _read_matrix(r, names, measure))


def _read_matrix(response: Response, names: tuple[str, ...], measure: Measure) -> SimilarityMatrix:
    answered = response.headers.get("x-modelkin-measure", "similarity")
    if answered != measure:
        raise UnknownFormError(
            f"the matrix is of {answered[:60]!r}, not of {measure!r}: the service may be too old"
        )
    values = _read_npy(content_of(response, _NPY), (len(names), len(names)))
    listed = response.headers.get("x-modelkin-estimated", "")
    try:
        estimated = tuple(names[int(row)] for row in listed.split(",") if row.strip())
    except (ValueError, IndexError):
        raise UnknownFormError(
            f"X-Modelkin-Estimated is {listed[:60]!r}, not row numbers"
        ) from None
    note = response.headers.get("x-modelkin-note")
    listed = response.headers.get("x-modelkin-constant-tensors", "")
    constants = tuple(unquote(name) for name in listed.split(",") if name)
    return SimilarityMatrix(names, values, estimated, measure, note, constants)


def _read_npy(content: bytes, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """A read-only matrix from a .npy file, whose header must declare the expected shape.

    Source: numpy.lib.format, version 1.0. ``numpy.load`` would allocate any size that it declares.
    """
    stream = io.BytesIO(content)
    try:
        np.lib.format.read_magic(stream)
        found, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except ValueError as error:
        raise UnknownFormError(f"the matrix is not a .npy file: {error}") from error
    body = content[stream.tell() :]
    if (found, fortran, dtype.str) != (shape, False, "<f8") or len(body) != 8 * shape[0] * shape[1]:
        raise UnknownFormError(f"the matrix is {found} of {dtype.str}, not {shape} of <f8")
    return np.frombuffer(body, dtype="<f8").reshape(shape)
