"""The page of all operations with curl: a line for each, by task, from the OpenAPI document."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from docs.line_length import MAX_LINE_LENGTH

__all__ = ["curl_page"]

_ADDRESS: Final = "http://127.0.0.1:8000"
_SCHEMA: Final = "#/components/schemas/"
_WIDTH: Final = 100
"""From this length on a body has a line of its own."""
_VALUES: Final = {
    "space": "digits-mlp",
    "model": "org/a",
    "target": "org/a",
    "a": "org/a",
    "b": "org/b",
    "with": "org/b",
    "owner": "default",
    "cluster": "all",
    "merge": "july",
    "attempt": "0",
    "shard": "0",
    "piece": "0",
    "Member-Token": "$TOKEN",
}
"""What stands for a parameter; any other is a variable of its name."""
_FILES: Final = {
    "application/vnd.modelkin.sketch": "a.sketch",
    "application/vnd.modelkin.fingerprint+zstd": "a.mkfp",
    "application/vnd.modelkin.cell": "cell",
    "application/vnd.safetensors": "trunk.safetensors",
}
"""The body of an operation that takes no JSON."""
_OPTIONS: Final = {
    "patch_support": ("-H", "'If-Match: *'"),
    "receive_delivery": ("-H", "'X-Webhook-Secret: another one'"),
    "follow_merge": ("-m", "2"),
}
"""Headers that operations demand beside their parameters, and an end to what waits for others."""
_MORE: Final = {
    "put_support": (
        "# Two more, for the lines below",
        *(
            f"curl -X PUT {_ADDRESS}/v1/spaces/digits-mlp/supports/{name} "
            f"-H 'Content-Type: application/json' -d '{{\"indices\": [3, 17, {last}]}}'"
            for name, last in (("org/b", 99), ("org/newcomer", 1024))
        ),
    ),
    "put_fingerprint": (
        "# Another, for the lines below",
        f"curl -X PUT {_ADDRESS}/v1/fingerprints/org/b "
        "-H 'Content-Type: application/vnd.modelkin.fingerprint+zstd' --data-binary @a.mkfp",
    ),
    "assign_cluster": (
        "# Store it",
        f"curl -X PUT {_ADDRESS}/v1/spaces/digits-mlp/supports/ward-25 "
        "-H 'Content-Type: application/json' -d '{\"indices\": [3, 17, 1024]}'",
    ),
}
"""Lines that follow those of an operation."""
_BODIES: Final = {
    "create_merge": {"members": ["org/a", "org/b", "org/newcomer"], "deadline": 3600},
    "put_learngene": {
        "digest": "sha256:" + 16 * "1f3c",
        "bytes": 16600,
        "tensors": [{"name": "0.weight", "dtype": "F32", "shape": [64, 64]}],
        "reference": {"kind": "https", "url": "https://files.example/trunk.safetensors"},
        "metrics": {"accuracy": 0.9},
        "rounds": 3,
    },
}
"""Bodies that stand for those of the document."""
_OF_SUBSPACES: Final = "409 here: of a space of data subspaces"
_OF_A_PARTY: Final = "refused here: of the program of a party"
_REFUSED: Final = {
    "put_signature": "409 here: it has 4 values, and the space takes 256",
    "put_sketch": "422 here: a.sketch is of a model that sent a signature",
    "put_subspace": _OF_SUBSPACES,
    "get_subspace": _OF_SUBSPACES,
    "join_cluster": _OF_SUBSPACES,
    "get_learngene_file": "409 here: the service keeps no values",
    "cancel_job": "409 once it has ended",
    **dict.fromkeys(
        ("give_verdict", "put_cell", "get_cell", "put_result", "get_result"),
        _OF_A_PARTY,
    ),
}
"""The operations that are refused where the lines run one after the other, and why."""
_ID_OF: Final = {
    "create_clustering": "CLUSTERING",
    "create_report": "REPORT",
    "create_job": "JOB",
    "create_source": "SOURCE",
    "create_subscription": "SUBSCRIPTION",
    "list_deliveries": "DELIVERY",
    "create_key": "PREFIX",
}
"""The variable that gets the id which an operation answers."""
_TITLE: Final = "# All operations with curl"
_FOR: Final = "*For users of the API from a shell: a line for each task. {} minutes.*"
_HEAD: Final = (
    "On an empty service the lines run from the first to the last, and brackets say which are "
    "refused there, and why. They are made of the [OpenAPI document](openapi.json), and a test "
    "runs them so. [API conventions](conventions.md) has what all operations have in common. "
    'Where keys are required, add `-H "Authorization: Bearer $MODELKIN_API_KEY"`. `a.mkfp` is '
    "what [modelkin fingerprint](cli.md) writes, and `batch.jsonl` has a JSON document a line. "
    "Give a job a moment; put a hub and a receiver of yours in the first lines of sources and "
    "subscriptions. `/docs` of the service has parameters, answers and errors."
)
_FIRST: Final = """
```sh
# The id in an answer
id_of() { grep -oE '"(id|prefix)": ?"[^"]+"' | head -1 | cut -d'"' -f4; }
# The token of a party of a merge, which it draws itself
TOKEN=$(openssl rand -hex 16)
```
"""


def curl_page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    tags = list(dict.fromkeys(tag["name"] for tag in document["tags"]))
    parts = [(tag.capitalize(), _lines(document, [tag], deleting=False)) for tag in tags]
    parts.append(("What deletes", _lines(document, tags, deleting=True)))
    body = "".join(
        "\n## {}\n\n```sh\n{}\n```\n".format(title, "\n".join(lines)) for title, lines in parts
    )
    head = textwrap.fill(_HEAD, MAX_LINE_LENGTH, break_on_hyphens=False)
    minutes = round(len((head + body).split()) / 200)
    return f"{_TITLE}\n\n{_FOR.format(minutes)}\n\n{head}\n{_FIRST}{body}"


def _lines(document: Mapping[str, Any], tags: Sequence[str], *, deleting: bool) -> Iterator[str]:
    """The lines of these tags' operations: what each does, and its command."""
    found = [
        (path, method, operation)
        for tag in tags
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if tag in operation["tags"] and (method == "delete") == deleting
    ]
    if deleting:
        found.reverse()
    else:  # what is stored under a name is there before it is asked for
        found.sort(key=lambda each: (each[2]["operationId"] == "patch_support", each[1] != "put"))
    for path, method, operation in found:
        refusal = _REFUSED.get(operation["operationId"])
        yield f"# {operation['summary']}{f' ({refusal})' if refusal else ''}"
        yield from _command(document, path, method, operation)
        yield from _MORE.get(operation["operationId"], ())


def _command(
    document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> Iterator[str]:
    required = [each for each in operation.get("parameters", []) if each.get("required")]
    values = {
        each["name"]: _VALUES.get(each["name"], f"${each['name'].upper()}") for each in required
    }
    asked = "&".join(
        f"{each['name']}={values[each['name']]}" for each in required if each["in"] == "query"
    )
    url = f"{_ADDRESS}{path.format_map(values)}{'?' if asked else ''}{asked}"
    words = ["curl", *_OPTIONS.get(operation["operationId"], ())]
    content = operation.get("requestBody", {}).get("content", {})
    if method.upper() != ("POST" if content else "GET"):
        words += ["-X", method.upper()]
    words.append(f'"{url}"' if "$" in url or "&" in url else url)
    for each in required:
        if each["in"] == "header":
            words += ["-H", f'"{each["name"]}: {values[each["name"]]}"']
    body = _BODIES.get(operation["operationId"])
    told = _json(body) if body is not None else _body(document, content)
    lines = list(_with_body(" ".join(words), *told))
    if (variable := _ID_OF.get(operation["operationId"])) is not None:
        lines[0] = f"{variable}=$(curl -s{lines[0].removeprefix('curl')}"
        lines[-1] += " | id_of)"
    yield from lines


def _body(document: Mapping[str, Any], content: Mapping[str, Any]) -> tuple[str, str]:
    """The header and the data of a body; two empty texts for none."""
    told = content.get("application/json", {})
    example = told.get("example")
    if example is None and (reference := told.get("schema", {}).get("$ref")):
        schema = document["components"]["schemas"][reference.removeprefix(_SCHEMA)]
        [example, *_] = schema.get("examples") or [None]
    if example is not None:
        return _json(example)
    for kind, file in _FILES.items():
        if kind in content:
            return f"-H 'Content-Type: {kind}'", f"--data-binary @{file}"
    [kind, *_] = content or [""]
    text = content.get(kind, {}).get("example", "")
    return (f"-H 'Content-Type: {kind}'", f"--data-binary @{_LINES}") if text else ("", "")


def _json(body: Any) -> tuple[str, str]:
    text = json.dumps(body, ensure_ascii=False).replace("'", r"'\''")
    return "-H 'Content-Type: application/json'", f"-d '{text}'"


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
