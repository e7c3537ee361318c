"""The OpenAPI document: the problems that each operation declares, beside what FastAPI finds.

A router declares the refusals of all its operations. Parameters declare the refusals of reading
them (:class:`Refuses`), and an operation declares those of its services::

    @routes.get(
        "/{space}",
        operation_id="get_space",
        summary="Show a space and its layout",
        refuses=(LayoutMissing,),
    )

The refusals of the middleware are declared here, in :func:`everywhere`.

FastAPI by itself would promise a body for 422 that is never sent, and no other error. Problems
outside all operations are declared by none: an unknown path or method (404, 405), a client that
left (400) and a bug (500).
"""

from __future__ import annotations

import http
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from app.infra.errors import CrossSiteRequest, MisdirectedRequest
from app.infra.http.attribute_texts import describe_attributes
from app.infra.http.examples import add_examples, add_texts
from app.infra.http.problems import PROBLEM, status_of
from app.infra.http.schemas import Problem
from modelkin.errors import ModelkinError

__all__ = ["CODES", "Refusal", "Refuses", "everywhere", "install", "problems"]

_REFERENCE: Final = "#/components/schemas/{model}"
_ANSWER: Final = "#/components/responses/{name}"
CODES: Final = "x-codes"
"""The place where a route declares the codes of a status; the document shows statuses alone."""
_VERSIONED: Final = frozenset({"200", "201", "206", "304"})
_IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "an `ETag` that the client has: if it is this answer's, 304 without a body",
}
_ETAG: Final = {
    "description": "the version of what is answered, for `If-Match` and `If-None-Match`",
    "schema": {"type": "string"},
}
_UNDESCRIBED: Final = "Successful Response"
"""FastAPI's description of an answer of which nothing is said."""


Refusal: TypeAlias = type[ModelkinError] | tuple[int, str]
"""A problem of an operation: an error of the services, or a status and a code."""


class Documented:
    """A dependency that the OpenAPI document shows as another dependency.

    Attributes:
        shown: the other dependency. No request calls it, since FastAPI takes time for each
            dependency.
    """

    shown: Callable[..., Any]


class Refuses:
    """An annotation of a parameter: the problems that operations which take it may answer."""

    def __init__(self, *problems: Refusal) -> None:
        self.problems = problems


def problems(*refusals: Refusal) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of an operation or a router with these refusals.

    If both declare a status, FastAPI takes the operation's. So a router declares no status that its
    operations declare, too.

    Args:
        refusals: errors of the services, or a status and a code.
    """
    codes: dict[int, set[str]] = {}
    for refusal in refusals:
        status, code = refusal if isinstance(refusal, tuple) else (status_of(refusal), refusal.code)
        codes.setdefault(status, set()).add(code)
    return {status: {CODES: sorted(codes[status]), **_answer(status)} for status in sorted(codes)}


def everywhere(method: str) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of every operation of a method, whatever its router declares."""
    changing = () if method.upper() in {"GET", "HEAD"} else (CrossSiteRequest,)
    return problems(MisdirectedRequest, *changing)


def install(app: FastAPI, described: Callable[[], Sequence[BaseRoute]]) -> None:
    """Let ``app`` answer this document.

    Args:
        described: makes the routes that the document shows, when it is first asked for.
    """

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=described(),
                license_info=app.license_info,
                tags=app.openapi_tags,
                servers=app.servers,
            )
            _describe(made)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _describe(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for unsent in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unsent, None)
    problem = Problem.model_json_schema(ref_template=_REFERENCE)
    schemas |= problem.pop("$defs", {}) | {"Problem": problem}
    for schema in schemas.values():
        describe_attributes(schema)
        for field in schema.get("properties", {}).values():
            field.pop("title", None)  # its name again, in capitals
    add_examples(schemas)
    refused: set[int] = set()
    for operations in document["paths"].values():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                parameter["schema"].pop("title", None)
            operation["responses"] = dict(_answers(method, operation["responses"]))
            _add_versions(operation)
            add_texts(operation, schemas)
            refused |= {int(s) for s in operation["responses"] if int(s) >= 400}
    document["components"]["responses"] = {
        _name_of(status): _answer(status) for status in sorted(refused)
    }


def _add_versions(operation: dict[str, Any]) -> None:
    """Add the header of conditional reads, and the ``ETag`` of what may be read or changed so."""
    answers, parameters = operation["responses"], operation.setdefault("parameters", [])
    if "304" in answers:
        parameters.append(_IF_NONE_MATCH)
    conditions = {"if-match", "if-none-match"}
    if any(each["in"] == "header" and each["name"].lower() in conditions for each in parameters):
        for status in _VERSIONED & answers.keys():
            answers[status].setdefault("headers", {})["ETag"] = _ETAG
    if not parameters:
        del operation["parameters"]


def _answers(method: str, declared: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The answers of an operation: those of success, and then its problems by status."""
    refused = {int(status) for status in everywhere(method)}
    for status, answer in declared.items():
        if int(status) < 400:
            if answer["description"] == _UNDESCRIBED:
                answer["description"] = http.HTTPStatus(int(status)).phrase
            yield status, answer
        elif CODES in answer:
            refused.add(int(status))
    for each in sorted(refused):
        yield str(each), {"$ref": _ANSWER.format(name=_name_of(each))}


def _name_of(status: int) -> str:
    """The name of the problems of a status among the document's answers, `NotFound`."""
    return "".join(letter for letter in http.HTTPStatus(status).phrase if letter.isalpha())


def _answer(status: int) -> dict[str, Any]:
    return {
        "description": http.HTTPStatus(status).phrase,
        "content": {PROBLEM: {"schema": {"$ref": _REFERENCE.format(model="Problem")}}},
    }
