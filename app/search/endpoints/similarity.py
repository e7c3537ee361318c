"""/v1/spaces/{space}/overlap and /similarity: one pair in full, or the matrix of many."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, get_args
from urllib.parse import quote

import numpy as np
from fastapi import Query, Response
from pydantic_core import to_json

from app.infra.errors import (
    ModelNotFound,
    NotAcceptable,
    SupportMissing,
    TooMuch,
    Unavailable,
)
from app.infra.http.answers import AnswerMemory, LayoutMemory, gathered_answer, list_answer
from app.infra.http.dependencies import Accept
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.requests.negotiation import choose
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.models.subspaces.dependencies import CompareBy
from app.search.schemas import (
    MatrixMeasure,
    OverlapOut,
    SimilarityIn,
    SimilarityOut,
    TensorOverlapOut,
)
from app.search.similarity import SimilarityService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin import wire
from modelkin._validation import check_model_name
from modelkin.types.search import SimilarityMatrix

__all__ = ["PIECES", "routes"]

routes = Routes(
    prefix="/v1/spaces/{space}",
    tags=["kinship"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

CSV = "text/csv"
NPY = "application/x-npy"
_BYTES_OF_A_VALUE: Final = 32
"""Bytes of a matrix's value, as a number and as text."""
_MAX_HEADER: Final = 4096
"""Bytes of names in a header, at most."""


@routes.get(
    "/overlap",
    operation_id="get_overlap",
    summary="Compare two models exactly",
    refuses=(ModelNotFound, SupportMissing),
    response_model=OverlapOut,
)
def overlap(
    context: ReadingContext,
    spaces: Service[SpaceService],
    similarities: Service[SimilarityService],
    space_name: SpaceName,
    memory: LayoutMemory,
    a: Annotated[str, Query(description="one stored model")],
    b: Annotated[str, Query(description="another")],
    compare: CompareBy = None,
) -> Response:
    """Two models compared exactly, and tensor by tensor where the space has a layout.

    Data subspaces have the principal angles of each block that both have.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = similarities.overlap(
            session, space, check_model_name(a, field="a"), check_model_name(b, field="b"), compare
        )
        facts = OverlapOut.of(replace(found, tensors=None))
        tensors = (
            None if found.tensors is None else map(TensorOverlapOut.model_validate, found.tensors)
        )
    return list_answer("tensors", tensors, facts, memory)


@routes.post(
    "/similarity",
    operation_id="get_similarity",
    summary="Compare all pairs of models",
    response_model=SimilarityOut,
    refuses=(ModelNotFound, NotAcceptable, TooMuch, Unavailable),
    responses={
        200: {
            "content": {
                CSV: {"schema": {"type": "string"}},
                NPY: {"schema": {"type": "string", "format": "binary"}},
            }
        },
    },
    turn="heavy",
)
def similarity(
    context: ReadingContext,
    spaces: Service[SpaceService],
    similarities: Service[SimilarityService],
    space_name: SpaceName,
    memory: AnswerMemory,
    received: JsonBody[SimilarityIn],
    measure: Annotated[
        MatrixMeasure,
        Query(
            description="S; or what S is beyond chance, which needs a layout; or the cosine of the "
            "indices, weighted by the octaves of their ranks, which needs an ordered space"
        ),
    ] = "similarity",
    compare: CompareBy = None,
    accept: Accept = None,
) -> Response:
    """The similarities of all pairs, rows in the order asked; JSON, CSV or `.npy` by `Accept`.

    Where a kappa is unknown, JSON has null, CSV an empty cell and `.npy` NaN.
    """
    body = received.read()
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        media_type = choose(accept, (wire.JSON, CSV, NPY))
        names = [check_model_name(n, field=f"models[{i}]") for i, n in enumerate(body.models)]
        matrix = similarities.matrix(session, space, names, measure, compare, context.deadline)
        headers = {
            "Vary": "Accept",
            "X-Modelkin-Estimated": _estimated_rows(matrix),
            "X-Modelkin-Measure": matrix.measure,
        }
        if matrix.note is not None:
            headers["X-Modelkin-Note"] = matrix.note
        if matrix.constant_tensors:
            headers["X-Modelkin-Constant-Tensors"] = _listed(matrix.constant_tensors)
        memory.take(_BYTES_OF_A_VALUE * len(names) ** 2)
    return gathered_answer(
        PIECES[media_type](matrix), media_type, headers, memory, context.deadline
    )


def _json(matrix: SimilarityMatrix) -> Iterator[bytes]:
    """The matrix row by row: one call for all of it would hold up every other thread."""
    others = [each for each in get_args(MatrixMeasure) if each != matrix.measure]
    facts = {
        "models": matrix.models,
        "measure": matrix.measure,
        **dict.fromkeys(others),
        "estimated": matrix.estimated,
        "note": matrix.note,
        "constant_tensors": matrix.constant_tensors,
    }
    yield to_json(facts)[:-1] + b',"%b":' % matrix.measure.encode()
    for place, row in enumerate(_rows(matrix, None)):
        yield (b"," if place else b"[") + to_json(row)
    yield b"]}"


def _csv(matrix: SimilarityMatrix) -> Iterator[bytes]:
    yield _csv_line(["model", *matrix.models])
    for name, row in zip(matrix.models, _rows(matrix, ""), strict=True):
        yield _csv_line([name, *row])


def _csv_line(cells: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def _npy(matrix: SimilarityMatrix) -> Iterator[bytes]:
    file = io.BytesIO()
    np.save(file, matrix.values, allow_pickle=False)
    yield file.getvalue()


PIECES: Final[Mapping[str, Callable[[SimilarityMatrix], Iterator[bytes]]]] = {
    wire.JSON: _json,
    CSV: _csv,
    NPY: _npy,
}
"""The content of an answer by its media type, piece by piece."""


def _rows(matrix: SimilarityMatrix, unknown: Any) -> Iterator[list[Any]]:
    """The values row by row, with another word for NaN."""
    for values in matrix.values:
        row: list[Any] = values.tolist()
        yield [unknown if value != value else value for value in row]


def _listed(names: Sequence[str]) -> str:
    """Names for a header, percent-encoded, as many as fit into one that every proxy passes on."""
    listed = ""
    for name in names:
        more = f"{listed},{quote(name, safe='')}" if listed else quote(name, safe="")
        if len(more) > _MAX_HEADER:
            break
        listed = more
    return listed


def _estimated_rows(matrix: SimilarityMatrix) -> str:
    """The estimated rows, counted from 0, since names may not fit into a header."""
    row_of = {name: row for row, name in enumerate(matrix.models)}
    return ",".join(str(row_of[name]) for name in matrix.estimated)
