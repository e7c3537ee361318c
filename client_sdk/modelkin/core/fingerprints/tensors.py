"""The tensors of a fingerprint: what it knows of each, and why some have no lines to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod

from modelkin.core.fingerprints.matrices import sides

__all__ = ["LinesOfTensor", "NotComparable"]


class NotComparable(Enum):
    """Why a tensor has no lines to compare."""

    SHORT = "short"
    """It is a vector, or a side is below 64."""
    STRUCTURED = "structured"
    """It is a table that no training made, see ``tables``."""
    FEW_VALUES = "few_values"
    """Its largest magnitudes are equal, as those of ternary weights."""
    NO_KEYS = "no_keys"
    """No line has a set: all are constant, or repeated too often."""


@dataclass(frozen=True)
class LinesOfTensor:
    """What a fingerprint knows of a tensor.

    Attributes:
        names: its name, and those of equal tensors of the checkpoint, such as a tied head.
        shape: as it is stored.
        lines: the distinct keys of each length, before the sample is taken.
        reason: why there are none; None for tensors that are compared.
        signature: of its rows, 128 bytes; None where there are no lines.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    lines: Mapping[int, int]
    reason: NotComparable | None = None
    signature: bytes | None = None

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def size(self) -> int:
        """The number of its parameters."""
        return prod(self.shape)

    @property
    def row_length(self) -> int:
        """The length of the rows of its matrices."""
        return sides(self.shape)[1]
