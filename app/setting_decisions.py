"""Decisions that follow from several settings."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, Literal

from sqlalchemy.engine import make_url

__all__ = ["SettingDecisions"]

_DRAIN_S: Final = 5.0
"""Long enough for the probes of a load balancer, and for connections that uvicorn keeps idle."""


class SettingDecisions:
    """What the settings decide together."""

    if TYPE_CHECKING:  # fields of the settings: as annotations here they would lose their order
        auth: Literal["auto", "off", "required"]
        database_url: str
        drain_seconds: float | None
        embedded_worker: Literal["auto", "on", "off"]
        host: str
        processes: int

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def drain(self) -> float:
        """Seconds to drain; 0 for one process on loopback, which no other process replaces."""
        if self.drain_seconds is not None:
            return self.drain_seconds
        return _DRAIN_S if self.processes > 1 or not self.on_loopback else 0.0

    @property
    def keys_required(self) -> bool:
        """Whether a request needs a key."""
        return self.auth == "required" or (self.auth == "auto" and not self.on_loopback)

    @property
    def runs_embedded_worker(self) -> bool:
        """Whether the service carries out jobs beside its requests."""
        is_sqlite = make_url(self.database_url).get_backend_name() == "sqlite"
        return self.embedded_worker == "on" or (self.embedded_worker == "auto" and is_sqlite)
