"""The origin of a URL, which decides whether a token may go there."""

from __future__ import annotations

import pytest

from app.infra.egress.addresses import parse_url
from app.infra.egress.web_origins import web_origin
from app.infra.errors import EgressRefused


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("http://hub.example", "HTTP://Hub.Example:80/models?x=1#y"),
        ("https://hub.example:443", "https://hub.example"),
        ("http://[::1]:9/a", "http://[::1]:9"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
    ],
)
def test_spellings_of_one_origin(url: str, same: str) -> None:
    """Letter case, a default port, a path and the form of a name make no other origin."""
    assert web_origin(url) == web_origin(same)


@pytest.mark.parametrize(
    "other",
    [
        *("https://hub.example", "http://hub.example:8080", "http://hub.example."),
        *("http://hub", "http://hub.example.org", "http://sub.hub.example", "http://[::1]"),
    ],
)
def test_other_origins(other: str) -> None:
    """Another scheme, port or host is another origin; so is a host with a dot at its end."""
    assert web_origin("http://hub.example") != web_origin(other)


@pytest.mark.parametrize("port", ["+9", "-9", " 80", "8_0", "８０", "0", "65536", "x"])
def test_a_port_has_one_reading(port: str) -> None:
    """What one reader of URLs takes for a number, and another does not, is refused."""
    with pytest.raises(EgressRefused, match=r"URL|port"):
        parse_url(f"http://127.0.0.1:{port}/")
