"""A name server on loopback: A and AAAA records without a time to live, behind aliases."""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence

__all__ = ["NameServer", "Zone"]

Zone = Callable[[str, int], tuple[Sequence[str], Sequence[str]]]
"""The aliases of a name, one after the other, and its addresses, at its n-th look-up from 0 on."""

_A, _CNAME, _AAAA = 1, 5, 28


class NameServer:
    """Answers at port 53, from when it is made.

    Args:
        zone: what it answers; look-ups of A and of AAAA are counted apart.
    """

    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self.looks = Counter[tuple[str, int]]()
        """How often names were looked up, by name and type."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, name="names", daemon=True).start()

    def _serve(self) -> None:
        while True:
            query, sender = self._socket.recvfrom(2048)
            self._socket.sendto(self._answer(query), sender)

    def _answer(self, query: bytes) -> bytes:
        labels, at = list[str](), 12
        while size := query[at]:
            labels.append(query[at + 1 : at + 1 + size].decode().lower())
            at += 1 + size
        name, end = ".".join(labels), at + 5
        (kind,) = struct.unpack("!H", query[at + 1 : at + 3])
        aliases, addresses = self._zone(name, self.looks[name, kind])
        self.looks[name, kind] += 1
        records = [
            (owner, _CNAME, _name(alias))
            for owner, alias in zip([name, *aliases], aliases, strict=False)
        ]
        last = aliases[-1] if aliases else name
        records += [
            (last, kind, address.packed)
            for address in map(ipaddress.ip_address, addresses)
            if kind == {4: _A, 6: _AAAA}[address.version]
        ]
        head = query[:2] + struct.pack("!HHHHH", 0x8580, 1, len(records), 0, 0)
        return head + query[12:end] + b"".join(_record(*record) for record in records)


def _name(name: str) -> bytes:
    labels = (label.encode() for label in name.split("."))
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _record(owner: str, kind: int, data: bytes) -> bytes:
    return _name(owner) + struct.pack("!HHIH", kind, 1, 0, len(data)) + data
