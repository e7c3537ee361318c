"""Requests drawn from the OpenAPI document: what it allows, and what it does not, for any caller.

Values follow the schema of a field most of the time; the others are any values at all. Ids and
names of paths are known ones of any tenant, or made up.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from modelkin import Subspace, Support, wire
from tests.support.models.learngene_files import gene

__all__ = ["BODIES", "DOCUMENT", "ENDLESS", "Generator", "Names"]

DOCUMENT: Final[dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "openapi.json").read_text()
)
Names = Mapping[str, Sequence[str]]
"""Known values of the parameters of paths."""

ENDLESS: Final = frozenset({"follow_job", "follow_merge"})
"""They answer for as long as something runs."""
_LEFT_OUT: Final = ENDLESS | {"publish_space"}
"""The last lets other tenants see names of models."""
_RARE: Final = frozenset({"delete_space", "create_key", "revoke_key"})
_SUPPORT: Final = Support.from_indices(range(0, 1000, 7), 1000)
BODIES: Final[Mapping[str, tuple[bytes, ...]]] = {
    wire.SUPPORT: (_SUPPORT.to_bytes(),),
    wire.ROARING: (_SUPPORT.to_roaring(),),
    wire.RAW: (wire.encode_raw(_SUPPORT),),
    wire.SIGNATURE: (_SUPPORT.signature().to_bytes(),),
    wire.SKETCH: (_SUPPORT.sketch().to_bytes(),),
    wire.PATCH: (wire.encode_patch(_SUPPORT, Support.from_indices(range(0, 1000, 9), 1000)),),
    wire.SUBSPACE: (Subspace.of_basis([[1.0], [0.0], [2.0]]).to_bytes(),),
    wire.SAFETENSORS: (gene(),),
    "application/jsonl": (b'{"model":"a","signature":{}}\n{"model":"b"}\nnothing',),
}
_TEXTS: Final = (
    *(
        "",
        "a",
        "x" * 300,
        "é\u0301",
        "\u202e",
        "a\x00b",
        "../..",
        "%2e%2e",
        "' OR 1=1 --",
        "\ud800",
    ),
    *("0", "-1", "NaN", "null", "true", "a,b", "*", "a:b", "1e999", "<b>", "{{7*7}}", "full"),
)
_NUMBERS: Final = (0, 1, -1, 2, 7, 100, 2**31, 2**32, 2**63, 10**30, 0.5, -0.0, 1e308)


class Generator:
    """Draws requests from a seed.

    Args:
        seed: of all that is drawn.
        names: known values of parameters of paths and of queries that name something.
    """

    def __init__(self, seed: int, names: Names) -> None:
        self._draw = random.Random(seed)
        self._names = names
        self._operations = [
            (method.upper(), path, operation)
            for path, methods in DOCUMENT["paths"].items()
            for method, operation in methods.items()
            if operation["operationId"] not in _LEFT_OUT
        ]

    def request(self) -> tuple[str, dict[str, Any]]:
        """The id of an operation, and the arguments of ``httpx.Client.request``."""
        while True:
            method, path, operation = self._draw.choice(self._operations)
            if operation["operationId"] not in _RARE or self._draw.random() < 0.03:
                break
        headers: dict[str, str] = {}
        params: list[tuple[str, str]] = []
        for parameter in operation.get("parameters", ()):
            name, where = parameter["name"], parameter["in"]
            if where == "path":
                path = path.replace(f"{{{name}}}", self._path_part(name))
            elif self._draw.random() < (0.9 if parameter.get("required") else 0.3):
                value = self._plain(name, parameter["schema"])
                if where == "query":
                    params += [(name, value)] * self._draw.choice((1, 1, 1, 2))
                elif value.isascii() and value.isprintable():
                    headers[name] = value
        if self._draw.random() < 0.05:
            params.append(("unknown", "1"))
        request: dict[str, Any] = {"method": method, "params": params}
        request["url"] = path
        content = operation.get("requestBody", {}).get("content")
        if content and self._draw.random() < 0.95:
            kind = self._draw.choice(sorted(content))
            request["content"] = self._body(kind, content[kind])
            headers["Content-Type"] = kind if self._draw.random() < 0.95 else "text/plain"
        request["headers"] = {name: value.strip() for name, value in headers.items()}
        return operation["operationId"], request

    def _path_part(self, name: str) -> str:
        known = self._names.get(name)
        if known and self._draw.random() < 0.9:
            return quote(self._draw.choice(known), safe="/")
        return quote(self._draw.choice(_TEXTS), safe="", errors="surrogatepass") or "x"

    def _plain(self, name: str, schema: Any) -> str:
        """The text of a parameter of a query or a header."""
        known = self._names.get(name)
        if known and self._draw.random() < 0.7:
            return self._draw.choice(known)
        value = self._value(schema, 0)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, bool):
            return str(value).lower()
        text = value if isinstance(value, str) else json.dumps(value)
        return text.encode("utf-8", "replace").decode()

    def _body(self, kind: str, described: Any) -> bytes:
        if kind == wire.JSON:
            return json.dumps(self._value(described.get("schema", {}), 0)).encode()
        data = bytearray(self._draw.choice(BODIES.get(kind, (b"",))))
        while data and self._draw.random() < 0.4:
            data[self._draw.randrange(len(data))] = self._draw.randrange(256)
        return bytes(data)

    def _value(self, schema: Any, depth: int) -> Any:
        """A value of a schema, or now and then any value."""
        if depth > 6 or self._draw.random() < 0.08:
            return self._draw.choice((*_TEXTS, *_NUMBERS, None, True, [], {}, [1], {"a": 1}))
        if "$ref" in schema:
            return self._value(DOCUMENT["components"]["schemas"][schema["$ref"][21:]], depth)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._value(self._draw.choice(schema[key]), depth + 1)
        if "const" in schema or "enum" in schema:
            return self._draw.choice(schema.get("enum") or [schema["const"]])
        kind = schema.get("type", "object")
        return self._of_type(
            self._draw.choice(kind) if isinstance(kind, list) else kind, schema, depth
        )

    def _of_type(self, kind: str, schema: Any, depth: int) -> Any:
        if kind == "object":
            return {
                name: self._named(name, each, depth)
                for name, each in schema.get("properties", {"a": {"type": "string"}}).items()
                if name in schema.get("required", ()) or self._draw.random() < 0.4
            }
        if kind == "array":
            many = self._draw.choice((0, 1, 1, 2, 5))
            return [self._value(schema.get("items", {}), depth + 1) for _ in range(many)]
        if kind in ("integer", "number"):
            least, most = schema.get("minimum", -5), schema.get("maximum", 1000)
            if self._draw.random() < 0.3:
                return self._draw.choice((*_NUMBERS, least, most))
            drawn = self._draw.uniform(least, max(least, min(most, least + 1000)))
            return int(drawn) if kind == "integer" else drawn
        if kind == "boolean":
            return self._draw.random() < 0.5
        return None if kind == "null" else self._draw.choice(_TEXTS)

    def _named(self, name: str, schema: Any, depth: int) -> Any:
        known = self._names.get(name)
        if known and self._draw.random() < 0.7:
            return self._draw.choice(known)
        return self._value(schema, depth + 1)
