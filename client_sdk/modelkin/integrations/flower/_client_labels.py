"""``ClientLabel``: the name and the tags that a client's mod sends along."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import Context

from modelkin.errors import InvalidName, InvalidParameter
from modelkin.integrations.federation.client_names import check_client_tags, check_name

__all__ = ["ClientLabel", "NameOf", "TagsOf"]

log = logging.getLogger("modelkin.integrations")

NameOf = str | Callable[[Context], str]
"""A name, or a function that makes it of a node's context."""

TagsOf = Sequence[str] | Callable[[Context], Sequence[str]]
"""Tags, or a function that makes them of a node's context."""


class ClientLabel:
    """The name and the tags of a client, as values of a record.

    Args:
        name: one name for all nodes, or a function of each node's context, or None.
        tags: the same tags for all nodes, or a function of each node's context.

    Raises:
        InvalidName: a name or tag for all nodes is not valid.
        InvalidParameter: ``name`` or ``tags`` is of another type.
    """

    def __init__(self, name: NameOf | None, tags: TagsOf) -> None:
        if name is not None and not callable(name):
            if not isinstance(name, str):
                raise InvalidParameter(
                    f"name must be a string or a function of the context, not {name!r}",
                    field="name",
                )
            check_name(name)
        if not callable(tags):
            check_client_tags(tags)
        self._name, self._tags = name, tags

    def values(self, context: Context) -> dict[str, Any]:
        """The name and the tags of a node; the log says why some are missing.

        A function may read the node's configuration, in which a key can be missing.
        """
        found: dict[str, Any] = {}
        try:
            if self._name is not None:
                made = self._name(context) if callable(self._name) else self._name
                found["name"] = check_name(made)
            tags = check_client_tags(self._tags(context) if callable(self._tags) else self._tags)
            if tags:
                found["tags"] = list(tags)
        except (InvalidName, LookupError) as error:
            what = "tags are" if "name" in found else "name is"
            log.warning("no %s sent: %s: %s", what, type(error).__name__, error)
        return found
