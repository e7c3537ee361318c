"""``misfit``: a sentence for a package of another version than the service needs."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from traceback import walk_tb
from typing import Final

__all__ = ["REMEDY", "misfit"]

REMEDY: Final = (
    "install the service in an environment of its own: other programs, as Flower does, pin "
    "versions of the same packages"
)
_OURS: Final = frozenset({"app", "workers", "migrations", "modelkin"})


def misfit(error: ImportError) -> str | None:
    """Which package lacks what another one needs; None where a module of the service is at fault.

    Args:
        error: what an import ended with.
    """
    missing = error.name or ""
    top = missing.partition(".")[0]
    if not top or top in _OURS:
        return None
    modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    importer = next(filter(_is_package, reversed(modules)), "app").partition(".")[0]
    needing = "modelkin's service" if importer in _OURS else _with_version(importer)
    wanted = missing if isinstance(error, ModuleNotFoundError) else str(error)
    return f"{needing} needs {wanted!r}, which {_with_version(top)} here does not have"


def _is_package(module: str) -> bool:
    top = module.partition(".")[0]
    return bool(top) and top != "__main__" and top not in sys.stdlib_module_names


def _with_version(package: str) -> str:
    for name in packages_distributions().get(package, ()):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            break
    return package
