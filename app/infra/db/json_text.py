"""JSON columns that take a text: a value that is JSON already is not parsed and written again."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["JsonText", "column_text"]


class JsonText(str):
    """The JSON of a value, to be stored as it is."""

    __slots__ = ()


def column_text(value: Any) -> str:
    """Return the text of a value in a JSON column: the ``json_serializer`` of engines."""
    return value if isinstance(value, JsonText) else json.dumps(value)
