"""The operator's commands besides serving: each command of ``python -m app`` is a module here.

A command takes the arguments after its name and returns an exit code: 0 for done, 1 for a failure,
2 for wrong settings.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

__all__ = ["COMMANDS", "find_command"]

COMMANDS = {
    "backup": "copies.back_up",
    "check": "checks.run",
    "keys": "keys.run",
    "migrate": "migration.run",
    "rebuild-buckets": "buckets.run",
    "restore": "copies.put_back",
    "renew-secrets": "secrets.run",
    "tenants": "tenants.run",
    "verify": "verification.run",
}


def find_command(name: str) -> Callable[[list[str]], int] | None:
    """Import and return the command of a name, if there is one."""
    module, _, function = COMMANDS.get(name, "").partition(".")
    if not module:
        return None
    command: Callable[[list[str]], int] = getattr(import_module(f"{__name__}.{module}"), function)
    return command
