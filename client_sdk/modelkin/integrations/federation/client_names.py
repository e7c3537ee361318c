"""``ClientNames``: what the clients of a federation call themselves, as far as they may.

A node id is a random number of twenty digits. A client may send a name and tags instead, which
clusters and a service then show. Both come from the client, so they are checked before they are
used, and no client takes the name of another one that is connected.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from modelkin._validation import check_model_name, check_tags
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["ClientNames", "check_client_tags", "check_model_pattern", "check_name"]

log = logging.getLogger("modelkin.integrations")

MAX_NAME_BYTES: Final = 64
MAX_CLIENT_TAGS: Final = 20
"""A model has 50 at most, and the round is one of them."""


def check_name(name: Any) -> str:
    """The name of a client in normal form C.

    Raises:
        InvalidName: it is not one segment of a model's name, has more than 64 bytes, or is a whole
            number, which would be the id of another node.
    """
    text = check_model_name(name, field="name")
    if "/" in text:
        raise InvalidName(f"a client's name has no '/': {text!r}", field="name")
    if text.isdecimal():
        raise InvalidName(f"a client's name is not a number: {text!r}", field="name")
    if len(text.encode()) > MAX_NAME_BYTES:
        raise InvalidName(f"a client's name has at most {MAX_NAME_BYTES} bytes", field="name")
    return text


def check_client_tags(tags: Any) -> tuple[str, ...]:
    """The tags of a client.

    Raises:
        InvalidName: one is not a tag, or there are more than 20.
    """
    if not isinstance(tags, Sequence):
        raise InvalidName(f"tags are {type(tags).__name__}, not a list of strings", field="tags")
    found = check_tags(tags)
    if len(found) > MAX_CLIENT_TAGS:
        raise InvalidName(f"a client has at most {MAX_CLIENT_TAGS} tags", field="tags")
    return found


def check_model_pattern(model: str) -> str:
    """The pattern of the names of clients' models.

    Raises:
        InvalidName: what it makes is not a model's name.
        InvalidParameter: ``{node}`` is missing.
    """
    if "{node}" not in model:
        raise InvalidParameter(f"model {model!r} has no {{node}} in it", field="model")
    check_model_name(model.replace("{node}", "n" * MAX_NAME_BYTES))
    return model


class ClientNames:
    """The names and tags of the nodes of a run."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        """Of the nodes that sent one."""
        self.tags: dict[int, tuple[str, ...]] = {}
        """Likewise."""

    def note(self, node: int, sent: Mapping[str, object], present: Collection[int]) -> None:
        """Note what a node sent; the log says why a name or tags do not count.

        Args:
            node: its id.
            sent: with ``name`` and ``tags``, as far as it sent them.
            present: the nodes that are connected. The name of another one is free.
        """
        if "name" in sent:
            self._name(node, sent["name"], present)
        if "tags" in sent:
            try:
                self.tags[node] = check_client_tags(sent["tags"])
            except InvalidName as error:
                log.warning("the tags of node %d do not count: %s", node, error)

    def _name(self, node: int, sent: object, present: Collection[int]) -> None:
        try:
            name = check_name(sent)
        except InvalidName as error:
            log.warning("the name of node %d does not count: %s", node, error)
            return
        if self.names.get(node) == name:
            return
        for other in [each for each, taken in self.names.items() if taken == name]:
            if other in present:
                log.warning("node %d is not called %r: node %d is", node, name, other)
                return
            del self.names[other]
        self.names[node] = name

    def of(self, node: int) -> str:
        """The name of a node, or its id."""
        return self.names.get(node, str(node))

    def model(self, pattern: str, node: int) -> str:
        """The name of a node's model in a service."""
        return pattern.replace("{node}", self.of(node))
