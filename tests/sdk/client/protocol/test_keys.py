"""API keys through either client: what is sent, and what is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from modelkin.errors import InvalidParameter
from tests.sdk.client.conftest import Wire

KEY = {
    "prefix": "mk_QwAU1Z3X",
    "label": "ci",
    "scopes": ["read"],
    "state": "valid",
    "current": False,
    "created_at": "2026-01-02T03:04:05Z",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": "2026-01-02T04:00:00Z",
}
SECRET = "mk_QwAU1Z3XPuPcitSRVm8xln2eMuAwofAs41CNtFDWJ5X2QsJ9Y"


def test_a_key_is_made_and_not_shown(wire: Wire) -> None:
    """Label, scopes and seconds are sent once; the key is answered, and kept out of ``repr``."""
    client = wire.client(httpx.Response(201, json=KEY | {"key": SECRET}))
    made = client.keys.create(label="ci", scopes=["read"], valid_for=timedelta(days=1))
    [request] = wire.requests
    assert ("POST", "/v1/keys") == (request.method, wire.target)
    assert b'{"label":"ci","scopes":["read"],"valid_for_seconds":86400}' == request.content
    assert (SECRET, ("read",), False) == (made.key, made.scopes, SECRET in repr(made))


def test_keys_are_listed_and_read(wire: Wire) -> None:
    """Answers are typed, with the hour of the last use."""
    page = {"items": [KEY], "next_cursor": None}
    client = wire.client(httpx.Response(200, json=page), httpx.Response(200, json=KEY))
    [listed] = client.keys.list()
    assert datetime(2026, 1, 2, 4, tzinfo=UTC) == listed.last_used_at
    assert listed == client.keys.get(listed)
    assert b"/v1/keys/mk_QwAU1Z3X" == wire.requests[1].url.raw_path


@pytest.mark.parametrize("named", ["mk_QwAU1Z3X", SECRET])
def test_a_key_is_revoked_by_its_first_characters(wire: Wire, named: str) -> None:
    """No path of a request holds a whole key, even where one is given."""
    client = wire.client(httpx.Response(204))
    client.keys.revoke(named)
    assert ("DELETE", "/v1/keys/mk_QwAU1Z3X") == (wire.requests[0].method, wire.target)


@pytest.mark.parametrize("named", ["", "ci", "mk_QwAU1Z3", "mk_../../x", 7])
def test_what_names_no_key_is_refused_here(wire: Wire, named: Any) -> None:
    """Before anything is sent."""
    client = wire.client()
    with pytest.raises(InvalidParameter, match="first characters"):
        client.keys.get(named)
    assert [] == wire.requests


@pytest.mark.parametrize(
    "wrong", [{"scopes": "read"}, {"valid_for": timedelta(0)}, {"valid_for": timedelta(days=-1)}]
)
def test_what_can_be_no_key_is_refused_here(wire: Wire, wrong: dict[str, Any]) -> None:
    """A string in place of scopes, and a time that is over."""
    client = wire.client()
    with pytest.raises(InvalidParameter):
        client.keys.create(**wrong)
    assert [] == wire.requests
