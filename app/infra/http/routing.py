"""The name of a model in a path: the whole tail, with slashes, newlines and all.

Starlette's own ``path`` stops before a newline at the end and drops it, so that a request for
``a%0A`` would be answered, or carried out, for ``a``. This module does not decide whether the tail
is a name.
"""

from __future__ import annotations

from starlette.convertors import PathConvertor, register_url_convertor

__all__ = ["HOOKS", "MODEL"]


class _Tail(PathConvertor):
    regex = "(?s:.*)"


register_url_convertor("tail", _Tail())

HOOKS = "/v1/hooks/"
"""The prefix of the paths that hubs deliver to, without a key."""

MODEL = "/{model:tail}"
"""The end of a route that names a model."""
