"""``Filters``: the choice of the hub's models that a source follows.

``{"repos": [...], "owners": [...], "tags": [...]}``: a model is followed if its name fits one of
``repos`` (``*`` and ``?`` stand for any text and any character), the part before its first slash
is one of ``owners``, and it carries all ``tags``. An absent or empty field admits every model.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from modelkin._validation import check_model_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["FIELDS", "MAX_ENTRIES", "Filters", "unnamable"]

FIELDS = ("repos", "owners", "tags")
MAX_ENTRIES = 100
"""Entries of each field."""
_MAX_ENTRY_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Filters:
    """The models that a source follows, by name, owner and tag."""

    repos: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, filters: Mapping[str, Any]) -> Filters:
        """The filters of a source, validated.

        Raises:
            InvalidParameter: the JSON is not lists of texts under these three names.
        """
        if unknown := sorted(set(filters) - set(FIELDS)):
            raise InvalidParameter(
                f"filters are {', '.join(FIELDS)}, not {unknown[0][:50]!r}", field="filters"
            )
        return cls(**{name: _texts(name, filters.get(name) or ()) for name in FIELDS})

    def to_json(self) -> dict[str, list[str]]:
        """The JSON of the filters, without empty fields."""
        asked = {name: list(getattr(self, name)) for name in FIELDS}
        return {name: texts for name, texts in asked.items() if texts}

    def reason_against(self, name: str, tags: Collection[str] | None = None) -> str | None:
        """Why a model is not followed; None if it is.

        Args:
            name: the model's name on the hub.
            tags: the model's tags; None where they are unknown, which excludes nothing.
        """
        if self.repos and not any(_pattern(repo).fullmatch(name) for repo in self.repos):
            return f"its name fits none of the source's repos: {', '.join(self.repos)}"
        if self.owners and name.partition("/")[0] not in self.owners:
            return f"its owner is not one of the source's owners: {', '.join(self.owners)}"
        if tags is not None and (missing := [tag for tag in self.tags if tag not in tags]):
            return f"it does not carry the tag {missing[0]!r}"
        return None

    @property
    def named_owners(self) -> tuple[str, ...] | None:
        """The only owners of followed models, in order; None where any owner is possible.

        A public hub is listed owner by owner, or not at all.
        """
        if self.owners:
            return tuple(sorted(set(self.owners)))
        heads = {repo.partition("/")[0] for repo in self.repos if "/" in repo}
        if len(heads) == 0 or any("/" not in repo for repo in self.repos):
            return None
        return None if any(set("*?") & set(head) for head in heads) else tuple(sorted(heads))


def unnamable(name: str) -> str | None:
    """Why a model cannot have a hub's name here; None if it can.

    Names are kept as the hub writes them, since requests to the hub need that form.
    """
    try:
        checked = check_model_name(name)
    except InvalidName as error:
        return f"no model can have its name here: {error}"
    if checked != name:
        return "no model can have its name here: it is not in Unicode's normal form C"
    return None


def _texts(name: str, texts: Any) -> tuple[str, ...]:
    where = f"filters.{name}"
    if not isinstance(texts, Sequence) or isinstance(texts, str):
        raise InvalidParameter("use a list of texts", field=where)
    if len(texts) > MAX_ENTRIES:
        raise InvalidParameter(f"{MAX_ENTRIES} entries at most", field=where)
    for text in texts:
        if (
            not isinstance(text, str)
            or not 0 < len(text) <= _MAX_ENTRY_LENGTH
            or not text.isprintable()
        ):
            raise InvalidParameter(
                f"an entry is a text of 1 to {_MAX_ENTRY_LENGTH} printable characters", field=where
            )
    return tuple(dict.fromkeys(texts))


@lru_cache(maxsize=1000)
def _pattern(text: str) -> re.Pattern[str]:
    """The pattern as a regular expression without backtracking over a star."""
    return re.compile(fnmatch.translate(text.replace("[", "[[]")))
