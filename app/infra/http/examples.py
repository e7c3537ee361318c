"""Examples of bodies and answers: a schema without one gets one that is made of its fields."""

from __future__ import annotations

import json
from typing import Any, Final

from app.infra.http.example_texts import BYTES, STREAMS, TEXTS
from app.infra.http.example_values import AT, EXCEPTIONS, FIELDS, MADE

__all__ = ["add_examples", "add_texts"]

_REFERENCE: Final = "#/components/schemas/"


def add_examples(schemas: dict[str, Any]) -> None:
    """Give each object of an answer without an example one of all its fields."""
    for schema in schemas.values():
        for given in schema.get("examples", []):
            _restore_nulls(schemas, schema, given)
    made = {
        name: _whole(schemas, name)
        for name, schema in schemas.items()
        if _lacks(schema) and schema.get("additionalProperties") is not False
    }
    for name, example in made.items():
        schemas[name]["examples"] = [example]


def add_texts(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Give what an operation takes and answers an example where it is text, else say what it is."""
    name = operation["operationId"]
    answers = [a for status, a in operation["responses"].items() if int(status) < 400]
    for part in (operation.get("requestBody", {}), *answers):
        for media_type, content in part.get("content", {}).items():
            if (name, media_type) in TEXTS:
                content["example"] = TEXTS[name, media_type]
            elif name in STREAMS:
                data = json.dumps(schemas[STREAMS[name]]["examples"][0])
                content["example"] = f"id: 1\ndata: {data}\n\n"
            elif media_type in BYTES:
                content["schema"] = content["schema"] | {"description": BYTES[media_type]}


def _restore_nulls(schemas: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """Add the required fields that are null, which FastAPI leaves out of an example."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].removeprefix(_REFERENCE)]
    elif "anyOf" in schema:
        schema = schema["anyOf"][0]
    if isinstance(value, list):
        for each in value:
            _restore_nulls(schemas, schema.get("items", {}), each)
    elif isinstance(value, dict) and "properties" in schema:
        value |= {name: None for name in schema.get("required", ()) if name not in value}
        for field, part in schema["properties"].items():
            _restore_nulls(schemas, part, value.get(field))


def _lacks(schema: dict[str, Any]) -> bool:
    return "properties" in schema and "examples" not in schema


def _whole(schemas: dict[str, Any], name: str) -> Any:
    """The example that a schema declares; else one that is made of the examples of its fields."""
    schema = schemas[name]
    if not _lacks(schema):
        return schema["examples"][0] if "examples" in schema else _part(schemas, "", schema)
    fields = schema["properties"].items()
    return {field: _field(schemas, f"{name}.{field}", part) for field, part in fields}


def _field(schemas: dict[str, Any], place: str, schema: dict[str, Any]) -> Any:
    """An example of a field: its own in this schema, or one that is made."""
    if EXCEPTIONS.get(place) is MADE:
        schema = schema["anyOf"][0]
    elif place in EXCEPTIONS:
        return EXCEPTIONS[place]
    return _part(schemas, place.partition(".")[2], schema)


def _part(schemas: dict[str, Any], field: str, schema: dict[str, Any]) -> Any:
    """An example of a field, by its choices, its schema or its name; else the least value."""
    if "$ref" in schema:
        return _whole(schemas, schema["$ref"].removeprefix(_REFERENCE))
    if "examples" in schema:
        return schema["examples"][0]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _option(schemas, field, schema["anyOf"])
    if "$ref" in (items := schema.get("items", {})) or "enum" in items:
        return [_part(schemas, field, items)]
    return FIELDS[field] if field in FIELDS else _least(schema)


def _option(schemas: dict[str, Any], field: str, options: list[dict[str, Any]]) -> Any:
    """An example of a field of several types, by its name; without one, null where it may be."""
    if field not in FIELDS and {"type": "null"} in options:
        return None
    return _part(schemas, field, options[0])


def _least(schema: dict[str, Any]) -> Any:
    if schema.get("format") == "date-time":
        return AT
    least = {"integer": 0, "number": 0.0, "boolean": False, "array": [], "object": {}}
    return least.get(schema.get("type", ""), "text")
