"""The OpenAPI document in words: nothing in it is left to guess."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from app.kinship.reports.renderings.spreadsheet import COLUMNS

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
        for answer in operation["responses"].values():
            shared = answer.get("$ref", "").rpartition("/")[2]
            shown = DOCUMENT["components"]["responses"][shared] if shared else answer
            assert shown["description"] not in {"", "Successful Response"}, name


def test_the_document_says_where_the_service_is() -> None:
    """Relative to its own address, which a service cannot know from within."""
    assert [{"url": "/"}] == DOCUMENT["servers"]


def contents() -> Iterator[tuple[str, dict[str, Any]]]:
    """What each operation takes and, of its successes, answers, by its media type."""
    for name, operation in operations():
        answers = [a for status, a in operation["responses"].items() if int(status) < 400]
        for part in (operation.get("requestBody", {}), *answers):
            for media_type, content in part.get("content", {}).items():
                yield f"{name} {media_type}", content


def examples(content: dict[str, Any]) -> list[Any]:
    """The examples of a body or an answer, its own or those of its schema."""
    if "example" in content:
        return [content["example"]]
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    schema = DOCUMENT["components"]["schemas"][name] if name else content["schema"]
    return list(schema.get("examples", []))


def test_every_body_and_answer_has_an_example() -> None:
    """Bytes have their description in its place."""
    shown = dict(contents())
    assert len(shown) > 150
    assert [] == [
        place
        for place, content in shown.items()
        if not examples(content)
        and ("description" not in content["schema"] or "binary" != content["schema"]["format"])
    ]


def test_every_example_fits_its_schema() -> None:
    """As a validator of JSON Schema reads both."""
    wrong = []
    for place, content in contents():
        if "jsonl" in place:
            continue  # its schema is of a line
        schema = content["schema"] | {"components": DOCUMENT["components"]}
        validator = Draft202012Validator(schema, format_checker=FormatChecker())
        for example in examples(content):
            wrong += [f"{place}: {each.message}" for each in validator.iter_errors(example)]
    assert [] == wrong


def test_the_example_of_a_reports_table_has_its_columns() -> None:
    """A text has no schema that would say so."""
    shown = dict(contents())["get_report text/csv"]["example"]
    assert list(COLUMNS) == shown.splitlines()[0].split(",")
