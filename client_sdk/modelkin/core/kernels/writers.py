"""Who may write the kernels that a process would load: they are code, as the source is.

A folder of kernels is trusted if nobody may write it but root, this user, and those who may write
the source itself.
"""

from __future__ import annotations

import contextlib
import os
import stat
from functools import cache
from pathlib import Path

__all__ = ["is_trusted"]


@cache
def is_trusted(folder: str, source: str) -> bool:
    """Whether kernels in a folder may be loaded.

    Args:
        folder: the folder that numba keeps compiled loops in.
        source: the file of the loops.
    """
    if os.name != "posix":
        return True
    trusted = {"user 0", f"user {os.geteuid()}", *_own_group(), *_writers(Path(source).parent)}
    parent = Path(folder).parent
    found = {f"user {parent.stat().st_uid}"} if _is_sticky(parent) else _writers(parent)
    found |= _writers(Path(folder))
    for file in Path(folder).iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process has renamed it meanwhile
            found |= _writers(file)
    if _is_private(parent):  # a umask of 002 has let groups write what they cannot reach
        found = {each for each in found if each.startswith("user ")}
    return found <= trusted


def _writers(path: Path) -> set[str]:
    """The user, the group and the others that may write a file, or in a folder."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):  # whose mode says nothing
        return {f"user {status.st_uid}", *_writers(path.resolve())}
    found = {f"user {status.st_uid}"}
    if status.st_mode & stat.S_IWGRP:
        found.add(f"group {status.st_gid}")
    if status.st_mode & stat.S_IWOTH:
        found.add("others")
    return found


def _is_sticky(folder: Path) -> bool:
    """Whether users may not replace what others have in a folder, as in /tmp."""
    return bool(folder.stat().st_mode & stat.S_ISVTX)


def _is_private(folder: Path) -> bool:
    """Whether its owner alone reaches what lies in a folder."""
    return not folder.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)


def _own_group() -> set[str]:
    """The group of this user alone, which systems name like the user; none if there is none."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(os.getegid())
    except KeyError:  # a container's user has no name
        return set()
    return {f"group {group.gr_gid}"} if group.gr_name == user.pw_name else set()
