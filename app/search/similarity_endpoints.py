"""/v1/spaces/{space}/overlap and /similarity: one pair in full, or the matrix of many."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Body, Header, Query, Response
from pydantic_core import to_json

from app.auth.dependencies import AUTHENTICATED, REFUSALS, AuthenticatedJsonRoute
from app.errors import ModelNotFound, NotAcceptable, SupportMissing, TooMuch
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Reading, Turn
from app.infra.http.negotiation import choose
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.turns import counts_as
from app.search.schemas import OverlapOut, SimilarityIn, SimilarityOut
from app.search.similarity import SimilarityService
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace
from modelkin import wire
from modelkin._validation import check_model_name
from modelkin.errors import InvalidParameter
from modelkin.types.search import SimilarityMatrix

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}",
    tags=["kin"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

CSV = "text/csv"
NPY = "application/x-npy"


@router.get(
    "/overlap",
    operation_id="get_overlap",
    responses=problems(*SPACE_PROBLEMS, ModelNotFound, InvalidParameter, SupportMissing),
)
def overlap(
    similarities: Service[SimilarityService],
    space: KnownSpace,
    session: Reading,
    a: Annotated[str, Query(description="one stored model")],
    b: Annotated[str, Query(description="another")],
) -> OverlapOut:
    """Two models compared exactly, and tensor by tensor where the space has a layout."""
    found = similarities.overlap(
        session, space, check_model_name(a, field="a"), check_model_name(b, field="b")
    )
    return OverlapOut.of(found)


@router.post(
    "/similarity",
    operation_id="get_similarity",
    response_model=SimilarityOut,
    responses={
        200: {
            "content": {
                CSV: {"schema": {"type": "string"}},
                NPY: {"schema": {"type": "string", "format": "binary"}},
            }
        },
        **problems(
            *SPACE_PROBLEMS, *BODY_PROBLEMS, ModelNotFound, InvalidParameter, NotAcceptable, TooMuch
        ),
    },
)
@counts_as("heavy")
def similarity(
    similarities: Service[SimilarityService],
    space: KnownSpace,
    session: Reading,
    turn: Turn,
    body: Annotated[SimilarityIn, Body()],
    measure: Annotated[
        Literal["similarity", "kappa"],
        Query(description="S, or what S is beyond chance; the second needs a layout"),
    ] = "similarity",
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """The similarities of all pairs, rows in the order asked; JSON, CSV or `.npy` by `Accept`.

    Where a kappa is unknown, JSON has null, CSV an empty cell and `.npy` NaN.
    """
    media_type = choose(accept, (wire.JSON, CSV, NPY))
    names = [check_model_name(n, field=f"models[{i}]") for i, n in enumerate(body.models)]
    matrix = similarities.matrix(session, space, names, measure, turn)
    render = {wire.JSON: _json, CSV: _csv, NPY: _npy}[media_type]
    headers = {
        "Vary": "Accept",
        "X-Modelkin-Estimated": _estimated(matrix),
        "X-Modelkin-Measure": matrix.measure,
    }
    if matrix.note is not None:
        headers["X-Modelkin-Note"] = matrix.note
    return Response(render(matrix), media_type=media_type, headers=headers)


def _json(matrix: SimilarityMatrix) -> bytes:
    values = _rows(matrix, None)
    return to_json(
        {
            "models": matrix.models,
            "measure": matrix.measure,
            "similarity": values if matrix.measure == "similarity" else None,
            "kappa": values if matrix.measure == "kappa" else None,
            "estimated": matrix.estimated,
            "note": matrix.note,
        }
    )


def _csv(matrix: SimilarityMatrix) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["model", *matrix.models])
    for name, row in zip(matrix.models, _rows(matrix, ""), strict=True):
        writer.writerow([name, *row])
    return text.getvalue().encode()


def _npy(matrix: SimilarityMatrix) -> bytes:
    file = io.BytesIO()
    np.save(file, matrix.values, allow_pickle=False)
    return file.getvalue()


def _rows(matrix: SimilarityMatrix, unknown: Any) -> list[list[Any]]:
    """The values row by row, with another word for NaN."""
    rows: list[list[Any]] = matrix.values.tolist()
    if not np.isnan(matrix.values).any():
        return rows
    return [[unknown if value != value else value for value in row] for row in rows]


def _estimated(matrix: SimilarityMatrix) -> str:
    """The estimated rows, counted from 0, since names may not fit into a header."""
    row_of = {name: row for row, name in enumerate(matrix.models)}
    return ",".join(str(row_of[name]) for name in matrix.estimated)
