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
from importlib.util import find_spec
from typing import Any, Final
from urllib.request import getproxies, proxy_bypass

import httpx

from modelkin._version import __version__
from modelkin.client._transport.deadline import Deadline
from modelkin.errors import InvalidParameter, MissingExtra

__all__ = [
    "CALL_SECONDS",
    "DEFAULT_URL",
    "IDLE_SECONDS",
    "MAX_ANSWER_BYTES",
    "Config",
    "authorities",
    "proxy_for",
]

DEFAULT_URL: Final = "http://127.0.0.1:8000"

MAX_ANSWER_BYTES: Final = 1 << 30
"""The most bytes of an answer by default: as much as a service takes by default."""

CALL_SECONDS: Final = 600.0
"""The seconds of a call by default: a slow line sends a large support in them."""
IDLE_SECONDS: Final = 30.0
"""The seconds of a pause by default; a service computes for 10 s at most."""


_VERSION: Final = "/v1"
"""The end of addresses that are copied from a request; each call adds it."""
_MAX_PORT: Final = 65_535
_OWN_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables that ``httpx`` reads its authorities from."""


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of either client.

    Attributes:
        url: the service's address, without a slash at its end.
        headers: the headers of every request; they hold the key and do not show in ``repr``.
        timeout: seconds of a call, with its retries.
        idle_timeout: seconds, for connecting and for each pause while sending or receiving.
        retries: the number of attempts after the first.
        max_answer_bytes: the most bytes of an answer, and of the indices that it decodes to.
        trust_env: whether proxies of the environment apply; never for this machine itself.
    """

    url: str
    headers: dict[str, str] = field(repr=False)
    timeout: float
    idle_timeout: float
    retries: int
    max_answer_bytes: int
    trust_env: bool

    @classmethod
    def resolve(
        cls,
        url: str | None = None,
        api_key: str | None = None,
        timeout: float = CALL_SECONDS,
        retries: int = 3,
        idle_timeout: float = IDLE_SECONDS,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> Config:
        """Complete the arguments from the environment.

        Raises:
            InvalidParameter: an argument is invalid; says which and what to give.
        """
        # No compression: a few bytes unpack to gigabytes, and supports are compressed already.
        headers = {"User-Agent": f"modelkin/{__version__}", "Accept-Encoding": "identity"}
        key = _check_key(api_key or os.environ.get("MODELKIN_API_KEY") or None)
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        address = _check_url(url or os.environ.get("MODELKIN_URL") or DEFAULT_URL)
        return cls(
            url=address,
            headers=headers,
            timeout=_check_seconds(timeout, "timeout"),
            idle_timeout=_check_seconds(idle_timeout, "idle_timeout"),
            retries=_check_count(retries, "retries", "0 or more", 0),
            max_answer_bytes=_check_count(max_answer_bytes, "max_answer_bytes", "bytes above 0", 1),
            trust_env=not _is_loopback(httpx.URL(address).host),
        )

    def deadline(self, seconds: float | None = None) -> Deadline:
        """The deadline of a call from now; it may have less time than others."""
        given = self.timeout if seconds is None else max(min(self.timeout, seconds), 0.0)
        return Deadline(given, self.idle_timeout)

    @property
    def tls(self) -> ssl.SSLContext:
        """The context that verifies the service's certificate."""
        return authorities(self.trust_env)

    @property
    def proxy(self) -> httpx.Proxy | None:
        """The proxy of the environment for the service, if one applies."""
        return proxy_for(httpx.URL(self.url)) if self.trust_env else None


def authorities(trust_env: bool) -> ssl.SSLContext:
    """The context of the authorities that are trusted here."""
    return _authorities(trust_env, os.getpid(), *map(os.environ.get, _OWN_CERTIFICATES))


def proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    """The proxy of the environment for an address, if one applies.

    Raises:
        InvalidParameter: the variable holds no address of a proxy.
        MissingExtra: the proxy speaks SOCKS, and the package for it is not installed.
    """
    known = getproxies()
    address = known.get(url.scheme) or known.get("all")
    if not address or proxy_bypass(url.host) or proxy_bypass(url.netloc.decode("ascii")):
        return None
    try:
        proxy = httpx.Proxy(address if "://" in address else f"http://{address}")
    except (httpx.InvalidURL, ValueError):
        proxy = None
    if proxy is None or not proxy.url.host or (proxy.url.port or 0) > _MAX_PORT:
        # The message leaves out the address, which may hold a password.
        raise InvalidParameter(
            f"the proxy of the environment for {url.scheme}:// is no address like "
            f"http://proxy:3128: correct {url.scheme.upper()}_PROXY or ALL_PROXY",
            field="proxy",
        )
    if proxy.url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise MissingExtra("socksio", "socks", of="httpx")
    return proxy


@cache
def _authorities(trust_env: bool, process: int, *own: str | None) -> ssl.SSLContext:
    """The authorities that a client trusts, cached: reading them takes 17 ms.

    Args:
        trust_env: whether the variables apply.
        process: this process: another thread may hold a lock of the context while it is forked.
        own: the variables' values, so that a change reads the authorities again.
    """
    del process, own
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
    return str(parsed).rstrip("/").removesuffix(_VERSION).rstrip("/")


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


def _check_seconds(seconds: Any, name: str) -> float:
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not math.isfinite(seconds) or seconds <= 0:
        raise InvalidParameter(f"{name} must be seconds above 0, not {seconds!r}", field=name)
    return float(seconds)


def _check_count(given: Any, name: str, wanted: str, least: int) -> int:
    try:
        count = -1 if isinstance(given, bool) else operator.index(given)
    except TypeError:
        count = -1
    if count < least:
        raise InvalidParameter(f"{name} must be {wanted}, not {given!r}", field=name)
    return count
