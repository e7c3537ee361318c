"""The problems that operations declare, compared with the answers of the service."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import httpx
from fastapi.openapi.utils import get_openapi
from starlette.testclient import TestClient

from app.infra.http.openapi import CODES, everywhere
from app.main import described_routes

__all__ = ["DECLARED", "OPERATIONS", "Operation", "checked"]

Client = TypeVar("Client", httpx.Client, TestClient)


class Operation:
    """A documented operation.

    Args:
        method: in upper case.
        path: with its parameters in braces.
        described: its part of the OpenAPI document, with the codes of its problems.
    """

    def __init__(self, method: str, path: str, described: dict[str, Any]) -> None:
        self.name: str = described["operationId"]
        self.method = method
        self.path = path
        self.described = described
        self.problems = {
            (int(status), code)
            for responses in (described["responses"], everywhere(method))
            for status, response in responses.items()
            for code in response.get(CODES, ())
        }
        # A model's name is the tail of its path; no other parameter holds a slash.
        pattern = path.replace("{model}", "(?s:.*)")
        self._path = re.compile(re.sub(r"{\w+}", "[^/]+", pattern))

    def is_asked_by(self, request: Any) -> bool:
        """Whether a request calls this operation."""
        path = unquote(request.url.raw_path.decode().partition("?")[0])
        return request.method == self.method and self._path.fullmatch(path) is not None


def _operations() -> dict[str, Operation]:
    # An application would prepare all routes again, which takes longer than to describe them.
    document = get_openapi(title="", version="", routes=described_routes())
    found = [
        Operation(method.upper(), path, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
    ]
    return {operation.name: operation for operation in found}


OPERATIONS: Final = _operations()
"""All documented operations by their ids, in the order of matching."""
DECLARED: Final = sorted(
    (operation.name, *problem)
    for operation in OPERATIONS.values()
    for problem in operation.problems
)
"""Every problem that is declared: operation, status and code."""


def checked(client: Client) -> Client:
    """The same client; an answer that its operation does not declare fails the test."""
    client.event_hooks["response"].append(_require_declared)
    return client


def _require_declared(answer: Any) -> None:
    if answer.status_code < 400:
        return
    operations = (o for o in OPERATIONS.values() if o.is_asked_by(answer.request))
    operation = next(operations, None)
    if operation is None:  # a page, or a path or method that no operation has
        return
    answer.read()
    problem = answer.status_code, answer.json()["code"]
    assert problem in operation.problems, f"{operation.name} does not declare {answer.text}"
