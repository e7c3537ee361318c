"""Quantised tensors of safetensors files, as the values that they stand for.

Names and configurations say which scheme it is (:mod:`.recognition`). A module a family knows the
published layout, and makes of it codes, scales and zeros, from which a tensor is computed in
stretches (:mod:`.tensor`). Nothing of a tensor is ever in memory whole.
"""

from __future__ import annotations

from modelkin.checkpoints.quantised.recognition import Recognition, recognise
from modelkin.checkpoints.quantised.tensor import QuantisedTensor

__all__ = ["QuantisedTensor", "Recognition", "recognise"]
