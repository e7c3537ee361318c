"""Completion of the text typed into a search for models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from app.infra.db.database import Reader
from app.models.catalog.repositories import completions
from app.models.spaces.records import SpaceRecord
from app.tenancy.auth.records import Tenant

__all__ = ["Completion", "CompletionField", "complete", "complete_anywhere", "find_names_anywhere"]

CompletionField = Literal["name", "owner", "tag", "base", "attribute"]

_MAX_EACH: Final = 5
_MAX_ALONE: Final = 10


@dataclass(frozen=True, slots=True)
class Completion:
    """A value that completes the typed text.

    Attributes:
        value: the value; for an attribute ``key=value``.
    """

    field: CompletionField
    value: str


def find_names_anywhere(
    session: Reader, tenant: Tenant, text: str, limit: int
) -> list[tuple[str, str]]:
    """The spaces and names of a tenant's models whose name has the text in it, the first ones."""
    return completions.names_in_all_spaces(session, tenant, text, limit)


def complete_anywhere(session: Reader, tenant: Tenant, text: str) -> list[tuple[str, str]]:
    """The spaces and names of a tenant's models that a text may be completed to.

    Names that begin with the text come first, then those that have it anywhere.
    """
    found = completions.names_beginning_in_all_spaces(session, tenant, text, _MAX_ALONE)
    if len(found) < _MAX_ALONE:
        some = _MAX_ALONE + len(found)
        others = completions.names_in_all_spaces(session, tenant, text, some)
        found += [each for each in others if each not in found]
    return found[:_MAX_ALONE]


def complete(
    session: Reader, space: SpaceRecord, text: str, field: CompletionField | None = None
) -> list[Completion]:
    """Return the values that complete a text.

    Args:
        text: the beginning of a value, or any part of a name; for an attribute, its key, or its key
            and value with ``=`` between them.
        field: the field to search; None for all.
    """
    limit = _MAX_EACH if field is None else _MAX_ALONE
    fields: tuple[CompletionField, ...] = ("name", "owner", "tag", "base", "attribute")
    return [
        Completion(each, value)
        for each in ((field,) if field else fields)
        for value in _values(session, space, each, text, limit)
    ]


def _values(
    session: Reader, space: SpaceRecord, field: CompletionField, text: str, limit: int
) -> list[str]:
    if field == "owner":
        return completions.owners_beginning(session, space, text, limit)
    if field == "tag":
        return completions.tags_beginning(session, space, text, limit)
    if field == "base":
        return completions.bases_beginning(session, space, text, limit)
    if field == "attribute":
        return _attributes(session, space, text, limit)
    names = completions.names_beginning(session, space, text, limit)
    if len(names) < limit and text:
        others = completions.names_holding(session, space, text, limit + len(names))
        names += [name for name in others if name not in names]
    return names[:limit]


def _attributes(session: Reader, space: SpaceRecord, text: str, limit: int) -> list[str]:
    """Keys and values, the frequent ones first."""
    wanted = text.casefold()
    found = completions.attributes_of_some(session, space)
    ranked = sorted(found, key=lambda pair: (-found[pair], pair))
    written = (f"{key}={value}" for key, value in ranked)
    return [each for each in written if each.casefold().startswith(wanted)][:limit]
