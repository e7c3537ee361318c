"""Supports of safetensors checkpoints: no torch, no safetensors package, and little memory.

It owns the reading of checkpoints: headers, shards, dtypes, and the importances that weights alone
give. It never executes anything that a file says, and never has a checkpoint in memory: it is read
in stretches, once for each pass of a selection.

The order of parameters is that of the tensors' names, sorted by code point, since files list
tensors in whatever order their writer liked. That is another index space than that of
``modelkin.layout_of(model)``, unless the model's parameters are named in that order.
"""

from __future__ import annotations

from modelkin.checkpoints.files import Checkpoint, StoredTensor, open_checkpoint
from modelkin.checkpoints.header import Bounds
from modelkin.checkpoints.importance import (
    Watch,
    WrittenSupport,
    importance_chunks,
    select_from_checkpoint,
    write_support,
)

__all__ = [
    "Bounds",
    "Checkpoint",
    "StoredTensor",
    "Watch",
    "WrittenSupport",
    "importance_chunks",
    "open_checkpoint",
    "select_from_checkpoint",
    "write_support",
]
