"""Safe egress: HTTP clients for addresses that API clients name, never into a private network.

Every connection resolves its host once, has all addresses checked, and goes to one of the checked
addresses. The host's name is kept for ``Host``, SNI and the certificate. So a name that resolves to
something else a moment later gains nothing. No proxy of the environment is used. Redirects are
followed only if the caller asks for it, and then each hop is a connection like any other. The one
opt-in for hosts and networks that are not public is the allow-list of the settings.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Final

import httpx

from app.infra.egress.addresses import (
    MAX_URL_LENGTH,
    PORTS,
    Address,
    is_public,
    literal,
    parse_url,
    stands_for,
)
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.limits import Limit
from app.infra.egress.transport import GuardedTransport, system_message
from app.infra.errors import EgressRefused
from modelkin.errors import InvalidParameter

__all__ = ["Egress", "EgressRefused", "Resolve"]

Resolve = Callable[[str, int], Sequence[str]]
"""The addresses of a host, for connections to a port; OSError where it has none."""

_RESOLVE_TIMEOUT_S: Final = 2.0
"""Seconds that resolving the name in a URL may take that is checked."""

log = logging.getLogger(__name__)


class Egress:
    """The way out of the service.

    Args:
        allow: hosts and networks that may be connected to although they are not public.
        resolve: a function from names to addresses; the machine's resolver by default.
        tls: the context that checks certificates; the usual authorities by default.
    """

    def __init__(
        self,
        allow: Allowlist,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow = allow
        self.resolve = resolve or _resolve
        self._tls = tls
        self._making = threading.Lock()

    def check_url(self, url: str, field: str) -> None:
        """Refuse a URL that cannot be connected to at present.

        Resolving its host takes two seconds at most, and no transaction should wait for it.

        Args:
            field: the field that the error names.

        Raises:
            InvalidParameter: the URL is not an http or https URL of a host on the public internet.
        """
        try:
            if len(url) > MAX_URL_LENGTH:
                raise EgressRefused(f"a URL has at most {MAX_URL_LENGTH} characters")
            parsed = parse_url(url)
            self.addresses(parsed.host, parsed.port or PORTS[parsed.scheme], _RESOLVE_TIMEOUT_S)
        except EgressRefused as error:
            raise InvalidParameter(f"{field}: {error}", field=field) from None
        except OSError as error:
            host = httpx.URL(url).host
            raise InvalidParameter(
                f"{field}: the host {host!r} cannot be found ({system_message(error)})", field=field
            ) from None

    def client(
        self,
        *,
        timeout: float | httpx.Timeout,
        max_bytes: int | None = None,
        limit: Callable[[], Limit] | None = None,
    ) -> httpx.Client:
        """An HTTP client that checks every connection; the caller closes it.

        Args:
            timeout: seconds for each step, as httpx has it.
            max_bytes: the largest body of a response; it is requested uncompressed.
            limit: makes the limit of each connection, or returns that of all; connections are then
                not reused.

        Its requests raise :class:`EgressRefused` and what httpx raises.
        """
        return httpx.Client(
            transport=GuardedTransport(
                self.addresses, self._context(), max_bytes=max_bytes, limit=limit
            ),
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            headers={} if max_bytes is None else {"Accept-Encoding": "identity"},
        )

    def addresses(self, host: str, port: int, timeout: float | None) -> list[Address]:
        """Return the addresses of a host, all checked.

        Raises:
            EgressRefused: the service may not connect to one of the addresses.
            OSError: the host has no address, or resolving it took too long.
        """
        address = literal(host)
        found = [address] if address else self._look_up(host, port, timeout)
        if self._allow.names(host, port):
            return found
        for address in found:
            inner = stands_for(address)
            if self._allow.holds(address, port) or all(
                is_public(one) or self._allow.holds(one, port) for one in inner
            ):
                continue
            if literal(host):
                refused = f"{host} is not a public address"
            else:
                # The client must not learn which private address a name resolves to.
                log.info("refused to connect to %r: it is at %s", host, address)
                refused = f"{host!r} is not at a public address"
            raise EgressRefused(
                f"{refused}: the service connects elsewhere only where MODELKIN_EGRESS_ALLOW "
                f"says so"
            )
        return found

    def _context(self) -> ssl.SSLContext:
        """The TLS context; created once, since that takes a while."""
        with self._making:
            if self._tls is None:
                self._tls = httpx.create_ssl_context()
            return self._tls

    def _look_up(self, host: str, port: int, timeout: float | None) -> list[Address]:
        """Resolve a host in a thread, since the resolver has no timeout."""
        found: list[Sequence[str] | OSError] = []

        def look_up() -> None:
            try:
                found.append(self.resolve(host, port))
            except (OSError, UnicodeError) as error:
                found.append(error if isinstance(error, OSError) else OSError(str(error)))

        thread = threading.Thread(target=look_up, name="resolve", daemon=True)
        thread.start()
        thread.join(timeout)
        if not found:
            raise TimeoutError(f"resolving it took longer than {timeout:.0f} s")
        if isinstance(found[0], OSError):
            raise found[0]
        # A zone behind an address concerns this machine alone: such an address is not public.
        addresses = [ipaddress.ip_address(address) for address in dict.fromkeys(found[0])]
        if not addresses:
            raise OSError("it has no address")
        return addresses


def _resolve(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]
