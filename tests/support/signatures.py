"""Signatures as the rows of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from modelkin import Signature
from modelkin.core.sketching.schemes import ValueArray

__all__ = ["value_rows"]


def value_rows(signatures: Sequence[Signature]) -> ValueArray:
    """The values of signatures of one scheme, a row for each."""
    values: Any = np.stack([signature.values for signature in signatures])
    rows: ValueArray = values
    return rows
