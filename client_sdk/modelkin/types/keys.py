"""API keys of a tenant, as its administrators see them."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.types.vocabulary import KeyScope, KeyState

__all__ = ["ApiKey"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ApiKey(Printed):
    """An API key, without its secret part.

    Attributes:
        prefix: the first characters of the key, by which it is named.
        label: what it is for.
        scopes: what it may do.
        state: whether it opens anything.
        current: whether the client that asked uses this key.
        last_used_at: the hour of its last use, or `created_at` if that is in this hour; written
            down within minutes; None before its first.
        key: the key itself, only in the answer that created it; ``repr`` leaves it out.
    """

    prefix: str
    label: str
    scopes: tuple[KeyScope, ...]
    state: KeyState
    current: bool
    created_at: Moment
    expires_at: Moment | None = None
    revoked_at: Moment | None = None
    last_used_at: Moment | None = None
    key: str | None = field(default=None, repr=False)
