"""Checkpoints of safetensors and GGUF, without torch or the safetensors package, in little memory.

It reads headers, shards and dtypes, and computes importance from weights alone. It never executes
anything from a file, and never has a checkpoint in memory: it reads stretches, once for each pass
of a selection.

Parameters are in the order of the tensors' names, sorted by code point, since a file lists tensors
in any order. That is another index space than that of ``modelkin.layout_of(model)``, unless the
model's parameters are named in that order.
"""

from __future__ import annotations

from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import CheckpointLimits
from modelkin.checkpoints.importance import (
    PassObserver,
    WrittenSupport,
    default_rule,
    importance_chunks,
    select_from_checkpoint,
    weights_digest,
    write_support,
)
from modelkin.checkpoints.inner_products import inner_products
from modelkin.checkpoints.learngenes.average import AveragedLearngene, average_checkpoints
from modelkin.checkpoints.learngenes.cut import cut_checkpoint
from modelkin.checkpoints.lines import fingerprint
from modelkin.checkpoints.opening import open_checkpoint
from modelkin.checkpoints.reading import Reading, weights_of
from modelkin.checkpoints.rounding import rounding_note
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.checkpoints.values import CheckpointSink, CheckpointValues
from modelkin.core.fingerprints.inner_products import InnerProducts
from modelkin.core.weights import Weights

__all__ = [
    "Adapter",
    "AveragedLearngene",
    "CheckpointLimits",
    "Checkpoint",
    "CheckpointSink",
    "CheckpointValues",
    "InnerProducts",
    "StoredTensor",
    "Weights",
    "PassObserver",
    "Reading",
    "WrittenSupport",
    "average_checkpoints",
    "cut_checkpoint",
    "default_rule",
    "fingerprint",
    "importance_chunks",
    "inner_products",
    "open_checkpoint",
    "rounding_note",
    "select_from_checkpoint",
    "weights_digest",
    "weights_of",
    "write_support",
]
