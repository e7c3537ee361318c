"""The text of a search box as a filter: ``owner:acme tag:"round 3" digit=7 bert``.

Words before a colon name the field; a word with ``=`` is an attribute, any other a part of a name,
a base model or a source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from app.models.catalog.records import MAX_ATTRIBUTE_FILTERS, ModelFilter
from modelkin._validation import check_model_name, check_tag

__all__ = ["FIELDS", "Term", "filter_of", "misread", "quote_value", "terms_of"]

FIELDS: Final = ("owner", "tag", "base", "name", "has")
"""The fields of a term; ``has`` is for an attribute of any value."""

_TERM: Final = re.compile(r'(?:([a-z]+):)?("(?:[^"]|"")*"?|\S+)')
_RANGE: Final = re.compile(r"([\w.-]+)(?:[<>]=?|=[<>]|!=)([\w.+-]+)$")
_NAMED: Final = re.compile(r"([\w.-]+):([^/\s].*)$")
_MAX_CHARACTERS: Final = 400


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a query.

    Attributes:
        field: the field, one of :data:`FIELDS`, ``attribute`` or ``text``.
    """

    field: str
    value: str

    def __str__(self) -> str:
        """The term as it is written in a search box."""
        quoted = quote_value(self.value)
        if self.field in FIELDS:
            return f"{self.field}:{quoted}"
        return quoted


def quote_value(value: str) -> str:
    """A value as it is written in a query: in quotes where it has spaces or quotes."""
    if value and not re.search(r'[\s"]', value):
        return value
    return '"' + value.replace('"', '""') + '"'


def terms_of(query: str) -> list[Term]:
    """The terms of a query, in order."""
    return list(_terms(query.replace("\0", "")[:_MAX_CHARACTERS]))


def _terms(query: str) -> Iterator[Term]:
    for match in _TERM.finditer(query):
        field, value = match.group(1), match.group(2)
        if value.startswith('"'):
            value = value[1:].removesuffix('"').replace('""', '"')
        is_unfinished = field is None and value.removesuffix(":") in FIELDS
        if not value or (is_unfinished and value.endswith(":")):
            continue
        if field in FIELDS:
            yield Term(field, value)
            continue
        whole = value if field is None else f"{field}:{value}"
        is_attribute = "=" in whole and not whole.startswith("=")
        yield Term("attribute" if is_attribute else "text", whole)


def misread(query: str) -> list[str]:
    """What was likely meant by terms that no search understands, a sentence each."""
    said = []
    for term in terms_of(query):
        if term.field not in ("text", "attribute"):
            continue
        ranged = _RANGE.match(term.value)
        named = _NAMED.match(term.value)
        if ranged is not None:
            said.append(
                f"{term.value} is no range: an attribute is asked for by its value, as in "
                f"{ranged[1]}={ranged[2]}, or by has:{ranged[1]}."
            )
        elif named is not None and term.field == "text":
            said.append(
                f"{term.value} was looked for as a text: fields are {', '.join(FIELDS)}, and an "
                f"attribute is {named[1]}={quote_value(named[2])}."
            )
    return said


def filter_of(terms: list[Term]) -> ModelFilter:
    """The filter that the terms ask for together.

    Raises:
        InvalidName: a tag or a base cannot be one.
    """

    def values(field: str) -> list[str]:
        return [term.value for term in terms if term.field == field]

    bases, owners, names = values("base"), values("owner"), values("name")
    pairs = [tuple(text.split("=", 1)) for text in values("attribute")]
    keys = [(key, None) for key in values("has")]
    return ModelFilter(
        tags=tuple(check_tag(tag) for tag in values("tag")),
        prefix=_prefix(owners, names),
        text=" ".join(values("text")),
        attributes=(*((key, value) for key, value in pairs), *keys)[:MAX_ATTRIBUTE_FILTERS],
        base_model=check_model_name(bases[-1], field="base") if bases else None,
    )


def _prefix(owners: list[str], names: list[str]) -> str:
    if owners and names and not names[-1].startswith(owners[-1] + "/"):
        return f"{owners[-1]}/{names[-1]}"
    return names[-1] if names else f"{owners[-1]}/" if owners else ""
