"""The sketches that precede supports in a store far away: no files of this machine."""

from __future__ import annotations

import numpy as np

from modelkin.core.packed import PackedSupport
from modelkin.core.sketching.sketch import DEFAULT_SIZE, Sketch

__all__ = ["HEAD_BYTES", "SAMPLE_SEED", "SAMPLE_SIZE", "head_of", "sketch_of_head"]

SAMPLE_SIZE, SAMPLE_SEED = DEFAULT_SIZE, 1
"""The sample of every space: that of ``support.sketch()`` without arguments."""

HEAD_BYTES = SAMPLE_SIZE // 8
"""Bytes of a sketch in a store far away."""


def head_of(packed: PackedSupport) -> bytes:
    """The sketch of a support as it precedes the support in a store far away: plain words."""
    sketch = packed.sketch(SAMPLE_SIZE, SAMPLE_SEED)
    return sketch.words.astype("<u8", copy=False).tobytes()


def sketch_of_head(head: bytes, num_parameters: int, support_size: int) -> Sketch:
    """The sketch that :func:`head_of` wrote, of whose bytes the store had a checksum."""
    words = np.frombuffer(head, "<u8").astype(np.uint64, copy=False)
    return Sketch(
        words,
        size=SAMPLE_SIZE,
        seed=SAMPLE_SEED,
        num_parameters=num_parameters,
        support_size=support_size,
    )
