"""The values of signatures as the database stores them, from which LSH bands are cut."""

from __future__ import annotations

import numpy as np

from modelkin.core.sketching.schemes import value_dtype
from modelkin.core.sketching.signature import Signature

__all__ = ["signature_bytes"]


def signature_bytes(signature: Signature) -> bytes:
    """The values of a signature as the database stores them, little-endian."""
    dtype = np.dtype(value_dtype(signature.scheme)).newbyteorder("<")
    return signature.values.astype(dtype, copy=False).tobytes()
