"""Checkpoints that the tests of ingestion share."""

from __future__ import annotations

import numpy as np
from safetensors.numpy import save


def gptq() -> bytes:
    """Four bits packed into integers, with scales beside them."""
    return save(
        {
            "l.qweight": np.ones((64, 64), np.int32),
            "l.scales": np.ones((8, 64), np.float16),
        }
    )
