"""Checks of a service that is installed on this machine, by the settings it would start with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

__all__ = ["local_checks"]

C = TypeVar("C")

_SETTINGS: Final = ("modelkin_server.app.settings", "app.settings")
"""Where the service's package has its settings: installed, and in its repository."""
_LOOPBACK: Final = {"127.0.0.1", "localhost", "::1"}
_MIN_FREE_BYTES: Final = 5 << 30


def local_checks(url: str, check: Callable[..., C]) -> Iterator[C]:
    """The data folder, the secret key and the worker of a service on this machine.

    They follow from this shell's ``MODELKIN_*`` variables; a service that was started with others
    has others. For a service on another machine, and where none is installed, there are none.

    Args:
        url: of the service.
        check: makes a line of a name, a state, what was found, and what to do.
    """
    if urlsplit(url).hostname not in _LOOPBACK:
        return
    module = _installed()
    if module is None:
        return
    try:
        settings = module.Settings()
    except ValueError as error:
        yield check("settings", "fail", _wrong(error), "correct this variable of the service")
        return
    yield _data(settings, check)
    yield _secret_key(settings, check)
    if not settings.runs_embedded_worker:
        found = (
            "the service takes no jobs itself, since MODELKIN_EMBEDDED_WORKER or Postgres say so"
        )
        yield check("worker", "ok", f"{found}; `python -m workers` does")


def _installed() -> Any:
    for name in _SETTINGS:
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def _wrong(error: ValueError) -> str:
    """The variables that are wrong, and why; pydantic's text has its types and addresses too."""
    listed = getattr(error, "errors", None)
    if listed is None:
        return str(error)
    return "; ".join(
        f"MODELKIN_{'_'.join(map(str, each['loc'])).upper()}: {each['msg']}" for each in listed()
    )


def _data(settings: Any, check: Callable[..., C]) -> C:
    folder: Path = settings.data_dir
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    found = f"{free / 1e9:,.1f} GB free for {folder}"
    if free >= _MIN_FREE_BYTES:
        return check("data folder", "ok", found)
    return check("data folder", "warn", found, "free some, or move the data folder")


def _secret_key(settings: Any, check: Callable[..., C]) -> C:
    if settings.encryption_key_list:
        return check("secret key", "ok", "from MODELKIN_ENCRYPTION_KEYS")
    file: Path | None = settings.encryption_key_file
    if file is None:
        remedy = "set MODELKIN_ENCRYPTION_KEYS to 32 random characters or more"
        found = "none: the service can keep no secret of a source or subscription"
        return check("secret key", "fail", found, remedy)
    if not file.exists():
        return check("secret key", "ok", f"{file}, which the first start makes")
    if file.stat().st_mode & 0o077:
        return check("secret key", "warn", f"others can read {file}", f"chmod 600 {file}")
    return check("secret key", "ok", str(file))
