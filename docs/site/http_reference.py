"""A reference of the HTTP API, made of ``openapi.json``: each operation, by its group.

A hook of MkDocs. Schemas stand once, below the operations, and are linked, each with its example.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

DOCUMENT = Path(__file__).parents[1] / "openapi.json"
_SCHEMA = "#/components/schemas/"
_LINE = 100
"""The most characters of an example on one line."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    files.append(File.generated(config, "reference/http.md", content=page(document)))
    return files


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    operations = [
        (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    parts = [
        "# The HTTP API",
        "Every operation of the service. A running one has the same page with a form for each, at "
        "`/docs`. Errors are problem documents (RFC 9457); [a table](../errors.md#errors) "
        "lists their codes.",
    ]
    for tag in document["tags"]:
        parts += [f"## {tag['name'].capitalize()}", tag["description"]]
        own = (each for each in operations if tag["name"] in each[2]["tags"])
        parts += [_operation(path, method, operation) for path, method, operation in own]
    parts.append("## Schemas")
    schemas = document["components"]["schemas"]
    shown = _with_examples(schemas, (operation for _, _, operation in operations))
    parts += [_schema(name, schemas[name], name in shown) for name in sorted(schemas)]
    return "\n\n".join(parts) + "\n"


def _with_examples(schemas: Mapping[str, Any], operations: Iterable[Mapping[str, Any]]) -> set[str]:
    """The schemas whose examples are shown: of several with the same fields that with the most."""
    used: set[str] = set()
    for operation in operations:
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for content in part.get("content", {}).values():
                name = content["schema"].get("$ref", "").removeprefix(_SCHEMA)
                page = schemas.get(name, {}).get("properties", {})
                item = page["items"]["items"].get("$ref", "") if "next_cursor" in page else ""
                used.add(item.removeprefix(_SCHEMA) or name)
    fields = {name: set(schemas[name].get("properties", {})) for name in used - {""}}
    return {
        name for name, own in fields.items() if not any(own < other for other in fields.values())
    }


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    answers = operation["responses"]
    parts = [
        f"### {operation['summary']} {{ #{operation['operationId']} }}",
        f"`{method.upper()} {path}`",
        operation["description"],
        _parameters(operation.get("parameters", [])),
        _bodies("Body", operation.get("requestBody", {}).get("content", {})),
        *(
            _bodies(f"Answer {status}", answer.get("content", {})) or f"**Answer {status}**"
            for status, answer in answers.items()
            if int(status) < 400
        ),
        "**Errors**: " + ", ".join(status for status in answers if int(status) >= 400),
    ]
    return "\n\n".join(part for part in parts if part)


def _parameters(parameters: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | "
        f"{_cell(each.get('description') or each['schema'].get('description', ''))} |"
        for each in parameters
    ]
    return _table("| parameter | in | type | |", rows)


def _bodies(title: str, content: Mapping[str, Any]) -> str:
    kinds = (
        f"`{media_type}` {_type(each.get('schema', {}))}" for media_type, each in content.items()
    )
    examples = (_example(each["example"]) for each in content.values() if "example" in each)
    return "\n\n".join([f"**{title}**: " + ", ".join(kinds), *examples]) if content else ""


def _example(value: object) -> str:
    """A text, or JSON with a line for each of its fields if it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict) and len(text) > _LINE:
        fields = (f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items())
        text = "{\n" + ",\n".join(fields) + "\n}"
    return f"``` {{ .text .example }}\n{text.rstrip()}\n```"


def _schema(name: str, schema: Mapping[str, Any], has_example: bool) -> str:
    required = set(schema.get("required", []))
    rows = [
        f"| `{field}`{'' if field in required else ' (optional)'} | {_type(each)} | "
        f"{_cell(each.get('description', ''))} |"
        for field, each in schema.get("properties", {}).items()
    ]
    title = f"#### {name} {{ #{name.lower()} data-search-exclude }}"
    example = _example(schema["examples"][0]) if has_example else ""
    parts = (title, schema.get("description", ""), _table("| field | type | |", rows), example)
    return "\n\n".join(part for part in parts if part)


def _table(head: str, rows: list[str]) -> str:
    rule = "|" + " --- |" * (head.count("|") - 1)
    return "\n".join([head, rule, *rows]) if rows else ""


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words, with links to schemas."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_SCHEMA)
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[several]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any")


def _cell(text: str) -> str:
    return re.sub(r"([|\[\]])", r"\\\1", " ".join(text.split()))
