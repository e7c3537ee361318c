"""JSON columns that are given a text: what is written already is not parsed and written again."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["JsonText", "column_text"]


class JsonText(str):
    """The JSON of a value, to be stored as it is."""

    __slots__ = ()


def column_text(value: Any) -> str:
    """What a JSON column holds of a value: the ``json_serializer`` of engines."""
    return value if isinstance(value, JsonText) else json.dumps(value)
