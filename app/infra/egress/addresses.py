"""Classification of addresses, public or not, and validation of URLs.

Pure: it neither resolves nor connects. An address may embed another (mapped, translated,
tunnelled): it is public only if all embedded addresses are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final
from urllib.parse import urlsplit

import httpx

from app.infra.errors import EgressRefused

__all__ = [
    "MAX_URL_LENGTH",
    "PORTS",
    "Address",
    "Network",
    "is_public",
    "literal",
    "parse_url",
    "stands_for",
    "within",
]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_URL_LENGTH: Final = 2000
"""Characters of a stored URL."""
PORTS: Final = {"http": 80, "https": 443}
"""The supported schemes and their default ports."""
_LAST_PORT: Final = 65535

# IANA's special-purpose registries. Python's flags know most of them, but differ from one patch
# release to the next.
_SPECIAL_4: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # behind a carrier's translator, and where clouds keep metadata
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local: metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# A platform service that answers every virtual machine of its cloud at a public address.
_PLATFORM: Final = IPv4Address("168.63.129.16")
_GLOBAL_6: Final = IPv6Network("2000::/3")
"""The part of IPv6 that is allocated to the public; the rest is special or unallocated."""
_SPECIAL_6: Final = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_6TO4: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
"""Upper halves of interface identifiers that have an IPv4 address in their lower half."""
_LOW_32: Final = 0xFFFF_FFFF


def stands_for(address: Address) -> tuple[Address, ...]:
    """The addresses that a packet to this one may reach: itself, or the embedded ones."""
    if isinstance(address, IPv4Address):
        return (address,)
    bits = int(address)
    if address in _MAPPED or address in _NAT64:
        return (IPv4Address(bits & _LOW_32),)
    if address in _6TO4:
        return (IPv4Address(bits >> 80 & _LOW_32),)
    if address in _TEREDO:
        return IPv4Address(bits >> 64 & _LOW_32), IPv4Address(~bits & _LOW_32)
    if bits >> 32 & _LOW_32 in _ISATAP:
        return address, IPv4Address(bits & _LOW_32)
    return (address,)


def is_public(address: Address) -> bool:
    """Whether the address and all embedded addresses are on the public internet."""
    return all(_is_public(inner) for inner in stands_for(address))


def within(address: Address, networks: Iterable[Network]) -> bool:
    """Whether the address is in one of the networks."""
    return any(address in network for network in networks)


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, IPv4Address):
        return address != _PLATFORM and not within(address, _SPECIAL_4)
    return address.scope_id is None and address in _GLOBAL_6 and not within(address, _SPECIAL_6)


def literal(host: str) -> Address | None:
    """Return the address of a host that is written as one; None for a host name."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def parse_url(url: str) -> httpx.URL:
    """An http or https URL with a host and no credentials; :class:`EgressRefused` for others."""
    try:
        parsed = httpx.URL(url)
        port, host = parsed.port, parsed.host  # the host of `xn--0` cannot be decoded
    except (httpx.InvalidURL, ValueError) as error:
        raise EgressRefused(f"this is not a URL: {error}") from None
    if parsed.scheme not in PORTS or not host:
        raise EgressRefused("use an http:// or https:// URL with a host")
    if parsed.userinfo:
        raise EgressRefused("a URL must hold no user name or password: it is shown and logged")
    if port is not None and not 0 < port <= _LAST_PORT:
        raise EgressRefused(f"{port} is not a port: they go from 1 to {_LAST_PORT}")
    try:
        _ = urlsplit(url).port
    except ValueError:  # httpx takes `+9` and ` 80` for ports, and other readers do not
        raise EgressRefused("the port of a URL is a number in digits") from None
    return parsed
