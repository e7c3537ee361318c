"""File descriptors: how many this process may hold, and what part of them supports may take.

A support that is mapped from its file holds one for as long as it is mapped.
"""

from __future__ import annotations

import resource

__all__ = ["support_fd_budget", "raise_limit"]

_WANTED = 65536


def raise_limit() -> None:
    """Let this process hold as many as it can use, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def support_fd_budget() -> int:
    """A quarter of what this process may hold."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
