"""Calls about the API keys of a tenant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final, TypeAlias

from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, read_nothing
from modelkin.client._protocol.calls.decoding import reader
from modelkin.errors import InvalidParameter
from modelkin.types.keys import ApiKey
from modelkin.types.paging import Page

__all__ = ["AnyKey", "create", "get", "list_all", "revoke"]

AnyKey: TypeAlias = str | ApiKey
"""A key as answered, its first characters, or the key itself."""

_KEYS: Final = "/v1/keys"
_PREFIX: Final = re.compile(r"(mk_[0-9A-Za-z]{8})[0-9A-Za-z]*")


def create(label: str, scopes: Iterable[str] | None, valid_for: timedelta | None) -> Call[ApiKey]:
    """Makes a key."""
    body: dict[str, Any] = {"label": label}
    if isinstance(scopes, str):
        raise InvalidParameter("scopes is one string; give a list of scopes", field="scopes")
    if scopes is not None:
        body["scopes"] = list(scopes)
    if valid_for is not None:
        seconds = int(valid_for.total_seconds())
        if seconds < 1:
            raise InvalidParameter("valid_for is a second or more", field="valid_for")
        body["valid_for_seconds"] = seconds
    return Call(requests.send_once(_KEYS, body), reader(ApiKey))


def list_all() -> Call[Page[ApiKey]]:
    """Lists the keys of the tenant."""
    return Call(requests.get(_KEYS, requests.PAGE_SIZE), reader(Page[ApiKey]))


def get(key: AnyKey) -> Call[ApiKey]:
    """Reads a key."""
    return Call(requests.get(_path(key)), reader(ApiKey))


def revoke(key: AnyKey) -> Call[None]:
    """Revokes a key."""
    return Call(requests.write("DELETE", _path(key)), read_nothing)


def _path(key: AnyKey) -> str:
    """The path of a key; only the first characters of a whole key are sent."""
    text = key.prefix if isinstance(key, ApiKey) else key
    found = _PREFIX.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidParameter(
            "a key is named by its first characters, such as 'mk_QwAU1Z3X'", field="key"
        )
    return f"{_KEYS}/{found[1]}"
