"""The OpenAPI document in words: nothing in it is left to guess."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())


def fields(place: str, schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each field of a schema, and of those that stand in it, with its description."""
    for name, field in schema.get("properties", {}).items():
        yield f"{place}.{name}", field.get("description", "")
        yield from fields(f"{place}.{name}", field)
    inside = [schema["items"]] if "items" in schema else []
    for part in (*inside, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from fields(place, part)


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """All operations by their ids."""
    for item in DOCUMENT["paths"].values():
        for operation in item.values():
            yield operation["operationId"], operation


def test_every_field_is_described() -> None:
    """Each field of each body and answer says what it is, in two words or more."""
    schemas = DOCUMENT["components"]["schemas"]
    found = [each for name, schema in schemas.items() for each in fields(name, schema)]
    assert len(found) > 1000
    assert [] == [place for place, text in found if len(text.split()) < 2]


def test_every_parameter_and_answer_is_described() -> None:
    """Those of paths, queries and headers, and the statuses of all answers, have their words."""
    for name, operation in operations():
        assert operation["description"], name
        parameters = operation.get("parameters", [])
        assert [] == [each["name"] for each in parameters if not each.get("description")], name
        answers = operation["responses"].items()
        assert [] == [
            status
            for status, answer in answers
            if answer.get("description", "Successful Response") == "Successful Response"
        ], name


def test_the_document_says_where_the_service_is() -> None:
    """Relative to its own address, which a service cannot know from within."""
    assert [{"url": "/"}] == DOCUMENT["servers"]
