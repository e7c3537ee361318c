"""``/completions``, and those of a space: the suggestions of a search box, as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Response
from pydantic_core import to_json

from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.models.catalog.completions import Completion, CompletionField, complete, complete_anywhere
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui.queries import Term, quote_value
from app.ui.rendering import model_path, space_path

__all__ = ["routes"]

routes = Routes(include_in_schema=False)

_FIELDS: Final[dict[str, CompletionField]] = {
    "name": "name",
    "owner": "owner",
    "tag": "tag",
    "base": "base",
    "has": "attribute",
}


_MAX_SPACES: Final = 5


@routes.get("/completions")
def completions_anywhere(
    context: ReadingContext,
    spaces: Service[SpaceService],
    q: Annotated[str, Query(max_length=400)] = "",
) -> Response:
    """Spaces, and models of every space, with the typed text in their name."""
    with context.reading() as session:
        text = q.replace("\0", "").strip()
        items: list[dict[str, Any]] = []
        if text:
            found = spaces.list(session, context.tenant, limit=_MAX_SPACES, cursor=None, text=text)
            items += [_destination(each.name, "space", space_path(each)) for each in found.items]
            for space, name in complete_anywhere(session, context.tenant, text):
                items.append(_destination(name, f"in {space}", model_path(space, name)))
    return _answer(items)


@routes.get("/spaces/{space}/completions")
def completions(
    context: ReadingContext,
    spaces: Service[SpaceService],
    space_name: SpaceName,
    q: Annotated[str, Query(max_length=400)] = "",
) -> Response:
    """Completions of the term that is typed."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        field, text = _term(q.replace("\0", ""))
        found = complete(session, space, text, field) if text or field else []
    return _answer([_item(space, each) for each in found])


def _answer(items: list[dict[str, Any]]) -> Response:
    return Response(to_json({"items": items}), media_type="application/json")


def _destination(shown: str, kind: str, address: str) -> dict[str, Any]:
    """A suggestion that opens a page."""
    return {"shown": shown, "kind": kind, "text": shown, "address": address}


def _term(typed: str) -> tuple[CompletionField | None, str]:
    """Return the field of a term, and its text; its quote may still be open."""
    name, colon, rest = typed.partition(":")
    field = _FIELDS.get(name) if colon else None
    text = rest if field else typed
    if text.startswith('"'):
        text = text[1:].removesuffix('"').replace('""', '"')
    return field, text


def _item(space: SpaceRecord, found: Completion) -> dict[str, Any]:
    """A suggestion: a model opens its page, anything else completes the term."""
    item = {"shown": found.value, "kind": found.field}
    if found.field == "name":
        return {
            **item,
            "kind": "model",
            "text": f"name:{quote_value(found.value)}",
            "address": model_path(space, found.value),
        }
    return {**item, "text": str(Term(found.field, found.value))}
