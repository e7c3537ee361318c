"""The packages of clustering algorithms, which are in the extra ``clustering``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.infra.extras import DISTRIBUTION, is_installed
from modelkin.errors import MissingExtra

__all__ = ["missing_package", "require_package"]

_PACKAGES: Final[Mapping[str, tuple[str, str]]] = {
    "affinity_propagation": ("sklearn", "scikit-learn"),
    "agglomerative": ("scipy", "scipy"),
    "hdbscan": ("sklearn", "scikit-learn"),
    "leiden": ("igraph", "igraph"),
}
"""The module that an algorithm imports, and the package that has it."""


def missing_package(algorithm: str) -> str | None:
    """The package that an algorithm needs, if it is not installed."""
    module, package = _PACKAGES[algorithm]
    return None if is_installed(module) else package


def require_package(algorithm: str) -> None:
    """Raise ``MissingExtra`` for an algorithm whose package is not installed."""
    if (package := missing_package(algorithm)) is not None:
        raise MissingExtra(package, "clustering", of=DISTRIBUTION)
