"""The configuration of a client: address, key, timeout and retries, all checked.

``MODELKIN_URL`` and ``MODELKIN_API_KEY`` stand in for missing arguments. No message shows a key.
"""

from __future__ import annotations

import ipaddress
import math
import operator
import os
import ssl
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import httpx

from modelkin._version import __version__
from modelkin.errors import InvalidParameter

__all__ = ["DEFAULT_URL", "Config"]

DEFAULT_URL: Final = "http://127.0.0.1:8000"

_OWN_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables that ``httpx`` reads its authorities from."""


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of either client.

    Attributes:
        url: the service's address, without a slash at its end.
        headers: the headers of every request; they hold the key and do not show in ``repr``.
        timeout: seconds, for connecting and for each pause while sending or receiving.
        retries: the number of attempts after the first.
        trust_env: whether proxies of the environment apply; never for this machine itself.
    """

    url: str
    headers: dict[str, str] = field(repr=False)
    timeout: float
    retries: int
    trust_env: bool

    @classmethod
    def resolve(cls, url: str | None, api_key: str | None, timeout: float, retries: int) -> Config:
        """Complete the arguments from the environment.

        Raises:
            InvalidParameter: an argument is invalid; says which and what to give.
        """
        headers = {"User-Agent": f"modelkin/{__version__}"}
        key = _check_key(api_key or os.environ.get("MODELKIN_API_KEY") or None)
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        address = _check_url(url or os.environ.get("MODELKIN_URL") or DEFAULT_URL)
        return cls(
            url=address,
            headers=headers,
            timeout=_check_timeout(timeout),
            retries=_check_retries(retries),
            trust_env=not _is_loopback(httpx.URL(address).host),
        )

    @property
    def http_options(self) -> dict[str, Any]:
        """The arguments for ``httpx.Client`` and ``httpx.AsyncClient``."""
        return {
            "base_url": self.url,
            "headers": self.headers,
            # A wait for our own connection pool says nothing about the service: no limit.
            "timeout": httpx.Timeout(self.timeout, pool=None),
            "follow_redirects": False,
            "trust_env": self.trust_env,
            "verify": _authorities(self.trust_env, *map(os.environ.get, _OWN_CERTIFICATES)),
        }


@cache
def _authorities(trust_env: bool, *own: str | None) -> ssl.SSLContext:
    """The authorities that a client trusts, cached: reading them takes 17 ms.

    Args:
        trust_env: whether the variables apply.
        own: the variables' values, so that a change reads the authorities again.
    """
    del own
    return httpx.create_ssl_context(trust_env=trust_env)


def _check_url(url: Any) -> str:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError) as error:
        raise InvalidParameter(f"url is not a URL: {error}", field="url") from None
    if parsed.userinfo:
        # The message leaves out the URL, which may hold a password.
        raise InvalidParameter("url may not hold a user or password; use api_key=", field="url")
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise InvalidParameter(
            f"url must be like {DEFAULT_URL}, with http:// or https://, not {url!r}", field="url"
        )
    if parsed.query or parsed.fragment:
        raise InvalidParameter(f"url {url!r} may not have a ? or # part", field="url")
    return str(parsed).rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_key(key: Any) -> str | None:
    if key is None:
        return None
    # A secret read from a file often ends with a newline; anything else odd would break the header.
    text = key.strip() if isinstance(key, str) else ""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidParameter(
            "api_key must be printable ASCII without spaces (the key is not shown here)",
            field="api_key",
        )
    return text


def _check_timeout(timeout: Any) -> float:
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not math.isfinite(timeout) or timeout <= 0:
        raise InvalidParameter(f"timeout must be seconds above 0, not {timeout!r}", field="timeout")
    return float(timeout)


def _check_retries(retries: Any) -> int:
    try:
        count = -1 if isinstance(retries, bool) else operator.index(retries)
    except TypeError:
        count = -1
    if count < 0:
        raise InvalidParameter(f"retries must be 0 or more, not {retries!r}", field="retries")
    return count
