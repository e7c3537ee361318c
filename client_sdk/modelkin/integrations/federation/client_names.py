"""``ClientNames``: the names that the clients of a federation send, as far as they are valid.

A node id is a random number of twenty digits. A client may send a name and tags instead, which
clusters and a service then show. Both come from the client, so they are checked before use, and no
client can take the name of another connected client.
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
"""The most tags of a client: a model has 50 at most, and the round is one of them."""

_ALIKE: Final = (
    "; one string names all nodes of an app alike: give name=lambda context: "
    'context.node_config["name"], where each has its own'
)


def check_name(name: Any) -> str:
    """Check the name of a client, and return it in normal form C.

    Raises:
        InvalidName: the name is not one segment of a model's name, has more than 64 bytes, or is a
            whole number, which would be the id of another node.
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
    """Check the tags of a client, and return them.

    Raises:
        InvalidName: a value is not a tag, or there are more than 20.
    """
    if not isinstance(tags, Sequence):
        raise InvalidName(f"tags are {type(tags).__name__}, not a list of strings", field="tags")
    found = check_tags(tags)
    if len(found) > MAX_CLIENT_TAGS:
        raise InvalidName(f"a client has at most {MAX_CLIENT_TAGS} tags", field="tags")
    return found


def check_model_pattern(model: str) -> str:
    """Check the pattern of the names of clients' models, and return it.

    Raises:
        InvalidName: the pattern does not make valid names.
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
        """The name of each node that sent one."""
        self.tags: dict[int, tuple[str, ...]] = {}
        """The tags of each node that sent some."""

    def note(self, node: int, sent: Mapping[str, object], present: Collection[int]) -> None:
        """Note the name and tags of a node; the log says why some do not count.

        Args:
            node: the node's id.
            sent: the values that the node sent, perhaps with ``name`` and ``tags``.
            present: the connected nodes. The name of a node that is gone is free.
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
                log.warning("node %d is not called %r: node %d is%s", node, name, other, _ALIKE)
                return
            del self.names[other]
        self.names[node] = name

    def of(self, node: int) -> str:
        """The name of a node, or its id."""
        return self.names.get(node, str(node))

    def model(self, pattern: str, node: int) -> str:
        """The name of a node's model in a service."""
        return pattern.replace("{node}", self.of(node))
