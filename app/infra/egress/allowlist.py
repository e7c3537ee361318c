"""Allow-list of egress: the hosts and networks that are not public and may be connected to."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from app.infra.egress.addresses import Address, Network, within

__all__ = ["Allowlist"]


_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
"""A name, or an address of IPv6."""


@dataclass(frozen=True, slots=True)
class Allowlist:
    """Hosts and networks that may be connected to although they are not public.

    Attributes:
        networks: networks whose addresses are allowed, at every port.
        hosts: allowed host names, wherever they resolve to; with a port, or None for every port.
    """

    networks: tuple[Network, ...] = ()
    hosts: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def parse(cls, text: str | None) -> Allowlist:
        """Parse an allow-list: hosts, host:port and networks, separated by commas.

        Raises:
            ValueError: an entry has another form.
        """
        networks: list[Network] = []
        hosts: set[tuple[str, int | None]] = set()
        for entry in filter(None, (part.strip() for part in (text or "").split(","))):
            try:
                networks.append(ipaddress.ip_network(entry.strip("[]")))
            except ValueError:
                hosts.add(_host_and_port(entry))
        return cls(tuple(networks), frozenset(hosts))

    def names(self, host: str, port: int) -> bool:
        """Whether this very host is allowed, at this port."""
        return not self.hosts.isdisjoint({(_plain(host), None), (_plain(host), port)})

    def holds(self, address: Address, port: int) -> bool:
        """Whether this address is allowed, at this port."""
        return within(address, self.networks) or self.names(str(address), port)


def _host_and_port(entry: str) -> tuple[str, int | None]:
    """``hub.internal``, ``hub.internal:8443``, ``127.0.0.1:8000`` or ``[::1]:8000``."""
    refused = ValueError(
        f"{entry!r} is not a host, host:port or network: use such as "
        f"hub.internal,receiver.internal:8443,10.0.0.0/8"
    )
    try:
        parts = urlsplit(f"//{entry}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refused from None
    if not host or port == 0 or "@" in entry or not _HOST.fullmatch(host) or parts.netloc != entry:
        raise refused
    return _plain(host), port


def _plain(host: str) -> str:
    return host.lower().rstrip(".")
