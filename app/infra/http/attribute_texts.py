"""Descriptions of fields that stand in a docstring: ``Attributes`` of records of the SDK."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["describe_attributes"]

_HEADING: Final = "\n\nAttributes:\n"
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def describe_attributes(schema: dict[str, Any]) -> None:
    """Move what a schema's description says of its fields to these fields."""
    text, heading, attributes = schema.get("description", "").partition(_HEADING)
    if not heading:
        return
    schema["description"] = text
    for name, said in _ATTRIBUTE.findall(attributes):
        words = " ".join(said.split()).rstrip(".")
        # As JSON and Markdown write it.
        meaning = words.replace("``", "`").replace("None", "null").replace("False", "false")
        schema["properties"][name].setdefault("description", meaning)
