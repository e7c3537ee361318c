"""The page of all operations with curl: a line for each, by task, from the OpenAPI document."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from docs.line_length import MAX_LINE_LENGTH

__all__ = ["curl_page"]

_ADDRESS: Final = "http://127.0.0.1:8000"
_SCHEMA: Final = "#/components/schemas/"
_WIDTH: Final = 100
"""From this length on a body has a line of its own."""
_VALUES: Final = {
    "space": "digits-cnn",
    "model": "org/a",
    "target": "org/a",
    "a": "org/a",
    "b": "org/b",
    "with": "org/b",
    "owner": "default",
    "cluster": "0",
    "merge": "july",
    "attempt": "0",
    "shard": "0",
    "piece": "0",
    "prefix": "mk_QwAU1Z3X",
    "Member-Token": "$TOKEN",
}
"""What stands for a parameter; any other is ``$ID``."""
_FILES: Final = {
    "application/vnd.modelkin.sketch": "a.sketch",
    "application/vnd.modelkin.fingerprint+zstd": "a.mkfp",
    "application/vnd.modelkin.cell": "cell",
    "application/vnd.safetensors": "trunk.safetensors",
}
"""The body of an operation that takes no JSON."""
_TITLE: Final = "# All operations with curl"
_FOR: Final = "*For users of the API from a shell: a line for each task. {} minutes.*"
_HEAD: Final = (
    "[API conventions](conventions.md) has what all of them have in common: paging, versions, requests "
    "that are sent again, problems. "
    'Where keys are required, add `-H "Authorization: Bearer $MODELKIN_API_KEY"`. Lines are made '
    "of the [OpenAPI document](openapi.json), and run by a test. `$ID` is the id of a job, "
    "clustering, report, source, subscription or delivery, and `$TOKEN` the token of a member of a "
    "merge. `/docs` of the service has parameters, answers and errors."
)


def curl_page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    parts = []
    for tag in dict.fromkeys(tag["name"] for tag in document["tags"]):
        lines = "\n".join(_lines(document, tag))
        parts.append(f"\n## {tag.capitalize()}\n\n```sh\n{lines}\n```\n")
    body = "".join(parts)
    head = textwrap.fill(_HEAD, MAX_LINE_LENGTH, break_on_hyphens=False)
    minutes = round(len((head + body).split()) / 200)
    return f"{_TITLE}\n\n{_FOR.format(minutes)}\n\n{head}\n{body}"


def _lines(document: Mapping[str, Any], tag: str) -> Iterator[str]:
    """The lines of a tag's operations: what each does, and its command."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if tag in operation["tags"]:
                yield f"# {operation['summary']}"
                yield from _command(document, path, method, operation)


def _command(
    document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> Iterator[str]:
    required = [each for each in operation.get("parameters", []) if each.get("required")]
    values = {each["name"]: _VALUES.get(each["name"], "$ID") for each in required}
    asked = "&".join(
        f"{each['name']}={values[each['name']]}" for each in required if each["in"] == "query"
    )
    url = f"{_ADDRESS}{path.format_map(values)}{'?' if asked else ''}{asked}"
    words = ["curl"]
    content = operation.get("requestBody", {}).get("content", {})
    if method.upper() != ("POST" if content else "GET"):
        words += ["-X", method.upper()]
    words.append(f'"{url}"' if "$" in url or "&" in url else url)
    for each in required:
        if each["in"] == "header":
            words += ["-H", f'"{each["name"]}: {values[each["name"]]}"']
    yield from _with_body(" ".join(words), *_body(document, content))


def _body(document: Mapping[str, Any], content: Mapping[str, Any]) -> tuple[str, str]:
    """The header and the data of a body; two empty texts for none."""
    told = content.get("application/json", {})
    example = told.get("example")
    if example is None and (reference := told.get("schema", {}).get("$ref")):
        schema = document["components"]["schemas"][reference.removeprefix(_SCHEMA)]
        [example, *_] = schema.get("examples") or [None]
    if example is not None:
        text = json.dumps(example, ensure_ascii=False).replace("'", r"'\''")
        return "-H 'Content-Type: application/json'", f"-d '{text}'"
    for kind, file in _FILES.items():
        if kind in content:
            return f"-H 'Content-Type: {kind}'", f"--data-binary @{file}"
    [kind, *_] = content or [""]
    text = content.get(kind, {}).get("example", "")
    return (f"-H 'Content-Type: {kind}'", f"--data-binary @{_LINES}") if text else ("", "")


_LINES: Final = "batch.jsonl"
"""A file of many items, a JSON document a line."""


def _with_body(command: str, header: str, data: str) -> Iterator[str]:
    """The command in one line, or in two and more where it is long."""
    if not header:
        yield command
    elif len(command) + len(header) + len(data) < _WIDTH:
        yield f"{command} {header} {data}"
    else:
        yield f"{command} {header} \\"
        yield f"  {data}"
