"""How a model's name stands in a path: as its whole tail, slashes, newlines and all.

Starlette's own ``path`` stops before a newline at the end and drops it, so that a request for
``a%0A`` would be answered, or carried out, for ``a``. Whether the tail is a name is not decided
here.
"""

from __future__ import annotations

from starlette.convertors import PathConvertor, register_url_convertor

__all__ = ["HOOKS", "MODEL"]


class _Tail(PathConvertor):
    regex = "(?s:.*)"


register_url_convertor("tail", _Tail())

HOOKS = "/v1/hooks/"
"""How the paths begin that hubs deliver to, without a key."""

MODEL = "/{model:tail}"
"""The end of a route that names a model."""
