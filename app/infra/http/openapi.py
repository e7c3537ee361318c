"""The OpenAPI document: what FastAPI finds, with the problems that each operation may answer.

FastAPI would promise a body for 422 that is never sent, and says nothing of any other error.
"""

from __future__ import annotations

import http
from typing import Any

from fastapi import FastAPI

from app.infra.http.problems import PROBLEM
from app.infra.http.schemas import Problem

__all__ = ["install"]

_REFERENCE = "#/components/schemas/{model}"
_CONFLICTS = {
    "assign_cluster",
    "cancel_job",
    "create_source",
    "create_space",
    "find_donors",
    "find_neighbors",
    "get_overlap",
    "get_support",
    "patch_support",
    "poll_source",
    "put_signature",
    "put_support",
    "update_source",
}
"""Operations that may answer 409."""
_NEGOTIATED = {"get_graph", "get_similarity", "get_signature", "get_support"}
"""Operations that answer in the format that Accept asks for."""
_WRITES = {"put", "patch", "delete"}


def install(app: FastAPI) -> None:
    """Let ``app`` answer this document."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            _describe(plain())
        document: dict[str, Any] = app.openapi_schema  # type: ignore[assignment]
        return document

    app.openapi = described  # type: ignore[method-assign]


def _describe(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for unsent in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unsent, None)
    problem = Problem.model_json_schema(ref_template=_REFERENCE)
    schemas |= problem.pop("$defs", {}) | {"Problem": problem}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"]
            answers.pop("422", None)
            for status in sorted(_problems(path, method, operation)):
                answers[str(status)] = {
                    "description": http.HTTPStatus(status).phrase,
                    "content": {PROBLEM: {"schema": {"$ref": _REFERENCE.format(model="Problem")}}},
                }


def _problems(path: str, method: str, operation: dict[str, Any]) -> set[int]:
    """The statuses of 400 and above that an operation may answer."""
    if not path.startswith("/v1"):
        return {401, 403, 429} if path == "/metrics" else {503} if path == "/readyz" else set()
    name = operation["operationId"]
    if name == "receive_delivery":
        return {401, 408, 413, 422, 429, 503}
    statuses = {401, 403, 429, 503}
    if operation.get("parameters") or "requestBody" in operation:
        statuses.add(422)
    if any(part in path for part in ("{space}", "{job}", "{source}")):
        statuses.add(404)
    if "requestBody" in operation:
        streamed = method == "put" or name == "patch_support"
        statuses |= {408, 413, 415} if streamed else {413, 415}
    if method in _WRITES and "{model}" in path:
        statuses.add(412)
    if method == "put" or name == "patch_support":
        statuses.add(507)
    if name == "patch_support":
        statuses.add(428)
    if name in _CONFLICTS:
        statuses.add(409)
    if name in _NEGOTIATED:
        statuses.add(406)
    return statuses
