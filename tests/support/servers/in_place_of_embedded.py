"""Forked services in place of embedded ones, where how these start and end is not tested."""

from __future__ import annotations

from pathlib import Path

from tests.support.servers.server_process import Server

__all__ = ["InPlaceOfEmbedded"]


class InPlaceOfEmbedded:
    """What a client asks of its embedded service, of one that runs and is not the client's.

    Args:
        server: the one that runs.
    """

    def __init__(self, server: Server) -> None:
        self.url = server.url
        self.folder: Path = server.folder

    def wait(self) -> None:
        """It is ready."""

    def close(self) -> None:
        """Others may use it."""
