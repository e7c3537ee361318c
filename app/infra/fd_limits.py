"""Limits of file descriptors: for this process, its connections and memory-mapped supports.

A memory-mapped support holds a descriptor for as long as it is mapped.
"""

from __future__ import annotations

import resource

__all__ = ["connection_fd_budget", "raise_limit", "support_fd_budget"]

_MAX_DESCRIPTORS = 65536


def raise_limit() -> None:
    """Raise the limit of this process as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def support_fd_budget() -> int:
    """The descriptors that supports may use: a quarter of this process's limit."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4


def connection_fd_budget() -> int:
    """The descriptors that connections of clients may use: half of this process's limit."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
