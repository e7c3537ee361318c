"""Calls about public spaces: the terms of your own, and queries of all."""

from __future__ import annotations

from typing import Any, Final

from modelkin._validation import check_space_name
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, read_nothing
from modelkin.client._protocol.calls.decoding import reader
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.types.paging import Page
from modelkin.types.public import PublicNeighbors, PublicSpace, PublicSpaceInfo
from modelkin.wire import JSON

__all__ = ["get", "list_all", "neighbors", "publish", "settings", "withdraw"]

_PUBLIC: Final = "/v1/public"


def publish(
    space: str,
    step: float | None,
    floor: float | None,
    daily_queries: int | None,
    description: str,
) -> Call[PublicSpace]:
    """Makes a space public, or changes its terms."""
    body: dict[str, Any] = {"description": description}
    given = {"step": step, "floor": floor, "daily_queries": daily_queries}
    body |= {name: value for name, value in given.items() if value is not None}
    content = requests.json_bytes(body)
    return Call(requests.write("PUT", _own(space), content, JSON), reader(PublicSpace))


def settings(space: str) -> Call[PublicSpace]:
    """Reads the terms on which a space is public."""
    return Call(requests.get(_own(space)), reader(PublicSpace))


def withdraw(space: str) -> Call[None]:
    """Makes a space private."""
    return Call(requests.write("DELETE", _own(space)), read_nothing)


def list_all() -> Call[Page[PublicSpace]]:
    """Lists the public spaces of all tenants."""
    return Call(requests.get(_PUBLIC, requests.PAGE_SIZE), reader(Page[PublicSpace]))


def get(owner: str, space: str) -> Call[PublicSpaceInfo]:
    """Reads a public space."""
    return Call(requests.get(_path(owner, space)), reader(PublicSpaceInfo))


def neighbors(owner: str, space: str, query: Any, k: int) -> Call[PublicNeighbors]:
    """Finds the nearest models of a public space."""
    if not isinstance(query, Support | Signature):
        raise requests.wrong_type("query", "a Support or a Signature", query)
    path = f"{_path(owner, space)}/neighbors"
    request = requests.query(path, "query", query, [("k", str(k))])
    return Call(request, reader(PublicNeighbors))


def _own(space: str) -> str:
    return f"{requests.space_path(space)}/public"


def _path(owner: str, space: str) -> str:
    return f"{_PUBLIC}/{check_space_name(owner, field='owner')}/{check_space_name(space)}"
