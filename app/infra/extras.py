"""The extras of this service that are not installed: what it lacks, and the line that brings it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["DISTRIBUTION", "Absent", "absent_extras", "is_installed"]

DISTRIBUTION: Final = "modelkin-service"
"""Whose extras they are. pip finds it installed, so that no index needs to have it."""


@dataclass(frozen=True, slots=True)
class Absent:
    """An extra without which the service goes on, more slowly or with less.

    Attributes:
        extra: its name.
        effect: what is so without it.
    """

    extra: str
    effect: str

    @property
    def command(self) -> str:
        """The line that installs it."""
        return f"pip install '{DISTRIBUTION}[{self.extra}]'"


def absent_extras() -> Iterator[Absent]:
    """The extras that answers of every day miss; those for which a setting asks are errors."""
    if os.environ.get("MODELKIN_KERNELS") != "reference" and not is_installed("numba"):
        yield Absent(
            "fast", "numpy's loops give the same answers, and take longer in spaces of thousands"
        )
    if missing := [name for name in ("scipy", "sklearn", "igraph") if not is_installed(name)]:
        yield Absent("clustering", f"clusterings that need {' or '.join(missing)} fail")


def is_installed(module: str) -> bool:
    """Whether a module can be imported."""
    return importlib.util.find_spec(module) is not None
