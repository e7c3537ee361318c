"""What an operator does besides serving: each command of ``python -m app`` is a module here.

A command takes the arguments after its name and returns an exit code: 0 done, 1 it could not be,
2 wrong settings.
"""

from __future__ import annotations

from collections.abc import Callable

from app.cli import buckets, copies, keys, kinds, secrets, stop_lists, tenants, verification

__all__ = ["COMMANDS"]

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "backup": copies.back_up,
    "keys": keys.run,
    "rebuild-buckets": buckets.run,
    "restore": copies.put_back,
    "renew-secrets": secrets.run,
    "split-kinds": kinds.run,
    "stop-lists": stop_lists.run,
    "tenants": tenants.run,
    "verify": verification.run,
}
