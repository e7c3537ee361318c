"""A graph as GraphML, without any library for graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from modelkin._terminal_text import one_line

__all__ = ["graphml"]

_NAMESPACE: Final = "http://graphml.graphdrawing.org/xmlns"
_TYPES: Final = {bool: "boolean", int: "long", float: "double"}


def graphml(linked: Mapping[str, Any]) -> str:
    """A GraphML document.

    Args:
        linked: node-link data. Lists become texts with commas; what has no value is left out, and
            characters that XML cannot hold are escaped.
    """
    return "\n".join(_lines(linked)) + "\n"


def _lines(linked: Mapping[str, Any]) -> Iterator[str]:
    nodes = [_without(node, "id") for node in linked["nodes"]]
    edges = [_without(edge, "source", "target") for edge in linked["edges"]]
    facts = _without(linked["graph"])
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f'<graphml xmlns="{_NAMESPACE}">'
    for kind, rows in (("graph", [facts]), ("node", nodes), ("edge", edges)):
        for name, of in _keys(rows).items():
            yield f'<key id="{kind}-{name}" for="{kind}" attr.name="{name}" attr.type="{of}"/>'
    yield '<graph edgedefault="undirected">'
    yield from _data("graph", facts)
    for node, row in zip(linked["nodes"], nodes, strict=True):
        yield f"<node id={quoteattr(one_line(node['id']))}>{''.join(_data('node', row))}</node>"
    for edge, row in zip(linked["edges"], edges, strict=True):
        ends = (quoteattr(one_line(edge[end])) for end in ("source", "target"))
        data = "".join(_data("edge", row))
        yield "<edge source={} target={}>{}</edge>".format(*ends, data)
    yield "</graph></graphml>"


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {
        name: ",".join(value) if isinstance(value, list) else value
        for name, value in row.items()
        if name not in names and value is not None
    }


def _keys(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {name: _TYPES.get(type(value), "string") for row in rows for name, value in row.items()}


def _data(kind: str, row: Mapping[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        text = str(value).lower() if isinstance(value, bool) else one_line(str(value))
        yield f'<data key="{kind}-{name}">{escape(text)}</data>'
