"""What a client is made from: arguments, environment, and what is refused."""

from __future__ import annotations

from typing import Any

import certifi
import httpx
import pytest

import modelkin
from modelkin.client._transport.config import Config
from modelkin.errors import InvalidParameter
from tests.support.blocking_client import Connect


def test_arguments_go_before_the_environment(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The url argument wins over MODELKIN_URL, which wins over the default."""
    assert "http://127.0.0.1:8000" == connect().url
    monkeypatch.setenv("MODELKIN_URL", "https://kin.test/prefix/")
    assert "https://kin.test/prefix" == connect().url
    assert "http://other.test" == connect("http://other.test").url
    assert "http://other.test/kin" == connect("http://other.test/kin/v1/").url  # of a request


def test_every_request_introduces_itself(wire: Any, space_json: dict[str, Any]) -> None:
    """The key travels as a bearer token, beside the version of the SDK."""
    wire.client(httpx.Response(200, json=space_json), api_key="mk_secret\n").spaces.get("digits")
    headers = wire.requests[0].headers
    assert "Bearer mk_secret" == headers["authorization"]
    assert f"modelkin/{modelkin.__version__}" == headers["user-agent"]


def test_the_key_comes_from_the_environment(
    wire: Any, space_json: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MODELKIN_API_KEY is the key where none is given."""
    monkeypatch.setenv("MODELKIN_API_KEY", "mk_env")
    wire.client(httpx.Response(200, json=space_json)).spaces.get("digits")
    assert "Bearer mk_env" == wire.requests[0].headers["authorization"]


def test_without_a_key_there_is_no_authorization(wire: Any, space_json: dict[str, Any]) -> None:
    """No key, no header."""
    wire.client(httpx.Response(200, json=space_json)).spaces.get("digits")
    assert "authorization" not in wire.requests[0].headers


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"url": "127.0.0.1:8000"}, "url"),
        ({"url": "ftp://kin.test"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://kin.test/?a=b"}, "url"),
        ({"url": "http://kin.test:port"}, "url"),
        ({"url": "http://me:hunter2@kin.test"}, "url"),
        ({"url": 8000}, "url"),
        ({"api_key": "hunter2\nhunter2"}, "api_key"),
        ({"api_key": "hunter2é"}, "api_key"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"idle_timeout": 0}, "idle_timeout"),
        ({"max_answer_bytes": 0}, "max_answer_bytes"),
        ({"retries": -1}, "retries"),
        ({"retries": 1.5}, "retries"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], field: str, connect: Connect) -> None:
    """Each argument that cannot be right is refused by name, and secrets are not repeated."""
    with pytest.raises(InvalidParameter) as caught:
        connect(**options)
    assert field == caught.value.field
    assert "hunter2" not in str(caught.value)


def test_repr_shows_the_address_alone(connect: Connect) -> None:
    """A client in a log does not give its key away."""
    client = connect("http://kin.test", api_key="mk_secret")
    assert repr(client) in {"<Client of http://kin.test>", "<AsyncClient of http://kin.test>"}


def test_a_wait_for_our_own_connections_ends_with_the_call() -> None:
    """The idle timeout bounds the service's pauses; a call that waits for its turn has its time."""
    timeouts = Config.resolve(None, None, 50.0, 3, 5.0).deadline().timeouts()
    assert {"connect": 5, "read": 5, "write": 5, "pool": 50} == {
        name: round(seconds) for name, seconds in timeouts.items()
    }


def test_clients_share_what_they_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """The authorities are read once for all clients, and again where the variables name others."""

    def trusted() -> Any:
        return Config.resolve("https://kin.test", None, 1, 0).tls

    first = trusted()
    assert first is trusted()
    assert first.get_ca_certs()
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    assert first is not trusted()
    assert trusted() is trusted()
