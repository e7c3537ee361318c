"""Safe egress: connections to addresses that somebody else named, and never to our own network.

Every connection resolves its host once, has all addresses checked, and goes to one of these very
addresses, with the host's name kept for ``Host``, SNI and the certificate: a name that resolves to
something else a moment later gains nothing. No proxy of the environment is used, no redirect is
followed unless the caller asks for it, and then each hop is a connection like any other. The one
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

from app.errors import EgressRefused
from app.infra.egress.addresses import (
    MAX_URL,
    PORTS,
    Address,
    is_public,
    literal,
    parse_url,
    stands_for,
)
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.transport import GuardedTransport, said
from modelkin.errors import InvalidParameter

__all__ = ["Egress", "EgressRefused", "Resolve"]

Resolve = Callable[[str, int], Sequence[str]]
"""The addresses of a host, for connections to a port; OSError where it has none."""

_RESOLVING: Final = 2.0
"""Seconds that resolving the name in a URL may take that is checked."""

log = logging.getLogger(__name__)


class Egress:
    """The way out of the service.

    Args:
        allow: what may be connected to although it is not public.
        resolve: names to addresses; the machine's own resolver by default.
        tls: what certificates are checked against; the usual authorities by default.
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
        """Refuse a URL that could not be connected to as things are now. Resolving its host takes
        two seconds at most, and no transaction should wait for it.

        Args:
            field: what the mistake is called by.

        Raises:
            InvalidParameter: it is no http or https URL of a host out on the public internet.
        """
        try:
            if len(url) > MAX_URL:
                raise EgressRefused(f"a URL that is kept has at most {MAX_URL} characters")
            parsed = parse_url(url)
            self.addresses(parsed.host, parsed.port or PORTS[parsed.scheme], _RESOLVING)
        except EgressRefused as error:
            raise InvalidParameter(f"{field}: {error}", field=field) from None
        except OSError as error:
            host = httpx.URL(url).host
            raise InvalidParameter(
                f"{field}: the host {host!r} cannot be found ({said(error)})", field=field
            ) from None

    def client(
        self,
        *,
        timeout: float | httpx.Timeout,
        max_bytes: int | None = None,
        deadline: float | None = None,
        pace: float | None = None,
    ) -> httpx.Client:
        """A client all of whose connections are checked; close it.

        Args:
            timeout: seconds for each step, as httpx has it.
            max_bytes: of a response's body, which then comes uncompressed; beyond it the request
                is refused.
            deadline: seconds for a request from connecting to the last byte; no connection is
                used twice then.
            pace: bytes a second that must come beyond that; else nothing may.

        Its requests raise :class:`EgressRefused` and what httpx raises.
        """
        return httpx.Client(
            transport=GuardedTransport(
                self.addresses,
                self._context(),
                max_bytes=max_bytes,
                deadline=deadline,
                pace=pace,
            ),
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            headers={} if max_bytes is None else {"Accept-Encoding": "identity"},
        )

    def addresses(self, host: str, port: int, timeout: float | None) -> list[Address]:
        """The addresses to connect to, all of them checked.

        Raises:
            EgressRefused: one of them is not to be connected to.
            OSError: there are none, or nobody says so in time.
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
                # Where a name leads in our own network is nothing for whoever made it up.
                log.info("refused to connect to %r: it is at %s", host, address)
                refused = f"{host!r} is not at a public address"
            raise EgressRefused(
                f"{refused}: the service connects elsewhere only where MODELKIN_EGRESS_ALLOW "
                f"says so"
            )
        return found

    def _context(self) -> ssl.SSLContext:
        """What TLS is spoken with; made once, since that takes a while."""
        with self._making:
            if self._tls is None:
                self._tls = httpx.create_ssl_context()
            return self._tls

    def _look_up(self, host: str, port: int, timeout: float | None) -> list[Address]:
        """The resolver has no time limit of its own, so it is waited for in a thread."""
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
        # A zone behind an address is this machine's own business: such an address is not public.
        addresses = [ipaddress.ip_address(address) for address in dict.fromkeys(found[0])]
        if not addresses:
            raise OSError("it has no address")
        return addresses


def _resolve(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]
