"""Supports of torch models: their layout, the importance of each of their parameters, and
signatures made on their own device.

This package is the only one of modelkin that imports torch; it needs ``pip install
'modelkin[torch]'``.
"""

from modelkin.errors import MissingExtra

try:
    import torch as _torch  # noqa: F401  asked for here, so that its absence is told in modelkin's own words
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtra("torch", "torch") from error

from modelkin.torch.importance import fisher_importance, fisher_resamples
from modelkin.torch.layout import layout_of
from modelkin.torch.moments import GradientMoment
from modelkin.torch.optimizer import adam_importance
from modelkin.torch.signature import select_signature, signature_of
from modelkin.torch.weights import delta_importance, weight_importance

__all__ = [
    "GradientMoment",
    "adam_importance",
    "delta_importance",
    "fisher_importance",
    "fisher_resamples",
    "layout_of",
    "select_signature",
    "signature_of",
    "weight_importance",
]
