"""Supports of torch models: their layout, and the importance of each of their parameters.

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

from modelkin.torch.importance import fisher_importance
from modelkin.torch.layout import layout_of

__all__ = ["fisher_importance", "layout_of"]
