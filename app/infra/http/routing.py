"""The name of a model in a path: the whole tail, with slashes, newlines and all.

Starlette's own ``path`` stops before a newline at the end and drops it, so that a request for
``a%0A`` would be answered, or carried out, for ``a``. This module does not decide whether the tail
is a name.
"""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from fastapi.routing import APIRoute
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.routing import Match
from starlette.types import Scope

__all__ = ["HOOKS", "MODEL", "BehindModel"]


class _Tail(PathConvertor):
    regex = "(?s:.*)"


register_url_convertor("tail", _Tail())

HOOKS = "/v1/hooks/"
"""The prefix of the paths that hubs deliver to, without a key."""

MODEL = "/{model:tail}"
"""The end of a route that names a model."""


class BehindModel(APIRoute):
    """A route whose path may go on behind a model's name, by one more segment.

    A slash that is written ``%2F`` belongs to the name. So ``a/anatomy`` asks for the anatomy of
    ``a``, and ``a%2Fanatomy`` is a model.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        if match is Match.NONE:
            return match, found
        last = unquote_to_bytes(scope["raw_path"].rpartition(b"/")[2])
        is_own = last == self.path.rpartition("/")[2].encode()
        return (match, found) if is_own else (Match.NONE, {})
