"""The sockets that server processes listen on: one socket a process."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

from app.infra.errors import Unavailable
from app.settings import Settings

__all__ = ["bind_shared", "check_free", "listen_alone", "reserve"]

_BACKLOG = 2048


def reserve(settings: Settings) -> socket.socket:
    """Reserve the address for the processes that serve there.

    Raises:
        Unavailable: the address is in use, or does not belong to this machine.
    """
    address, family = (settings.host, settings.port), _family(settings)
    try:
        with socket.create_server(address, family=family) as probe:  # fails if in use
            address = probe.getsockname()[:2]
        return _bind(address, family)
    except OSError as error:
        raise _cannot_listen(settings, error) from error


def check_free(settings: Settings) -> None:
    """Find out before anything else is done whether :func:`listen_alone` can listen.

    Raises:
        Unavailable: the address is in use, or does not belong to this machine.
    """
    listen_alone(settings).close()


def listen_alone(settings: Settings) -> socket.socket:
    """Listen on the address, as the only process that serves.

    Raises:
        Unavailable: the address is in use, or does not belong to this machine.
    """
    address = settings.host, settings.port
    try:
        listening = socket.create_server(address, family=_family(settings), backlog=_BACKLOG)
    except OSError as error:
        raise _cannot_listen(settings, error) from error
    return _without_delay(listening)


def bind_shared(settings: Settings) -> socket.socket:
    """A socket on the reserved address that no client reaches before a process listens on it."""
    return _without_delay(_bind((settings.host, settings.port), _family(settings)))


def _bind(address: tuple[Any, ...], family: socket.AddressFamily) -> socket.socket:
    """A socket among others on an address."""
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(address)
    return bound


def _cannot_listen(settings: Settings, error: OSError) -> Unavailable:
    if error.errno == errno.EADDRINUSE:
        return Unavailable(
            f"port {settings.port} of {settings.host} is in use: choose another one with --port, "
            f"or --port 0 for any free one"
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return Unavailable(f"cannot listen on {settings.host}:{settings.port}: {reason}")


def _without_delay(listening: socket.socket) -> socket.socket:
    """asyncio does this only for its own sockets; else every answer waits 40 ms for an ACK."""
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _family(settings: Settings) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in settings.host else socket.AF_INET
