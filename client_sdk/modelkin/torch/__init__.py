"""Supports, fingerprints and learngenes of torch models: layouts, importance, layers to share.

This package and the integrations are the only ones that import torch. It needs
``pip install 'modelkin[torch]'``.
"""

from modelkin.errors import MissingExtra

try:
    import torch as _torch  # noqa: F401  first, so that modelkin's own error says that it is missing
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtra("torch", "torch") from error

from modelkin.torch.adapters import adapter_importance, select_adapter_support
from modelkin.torch.blinding import blind_indices
from modelkin.torch.federation.layer_scores import layer_changes, layer_dispersion, printed_scores
from modelkin.torch.federation.learngene import CutLearngene, Inherited, cut_learngene, inherit
from modelkin.torch.federation.penalty import ClusterPenalty
from modelkin.torch.federation.personal_layers import head_then_trunk
from modelkin.torch.federation.sharded_mean import ShardedMean
from modelkin.torch.fingerprints.fingerprint import fingerprint
from modelkin.torch.importance import fisher_importance, fisher_resamples
from modelkin.torch.layout import layout_of
from modelkin.torch.moments import GradientMoment
from modelkin.torch.optimizer import adam_importance
from modelkin.torch.signature import select_signature, signature_of
from modelkin.torch.subspace import fit_subspace
from modelkin.torch.votes import vote_counts
from modelkin.torch.weights import delta_importance, weight_importance, weights_digest

__all__ = [
    "ClusterPenalty",
    "CutLearngene",
    "GradientMoment",
    "Inherited",
    "ShardedMean",
    "adam_importance",
    "adapter_importance",
    "blind_indices",
    "cut_learngene",
    "delta_importance",
    "fingerprint",
    "fisher_importance",
    "fisher_resamples",
    "fit_subspace",
    "head_then_trunk",
    "inherit",
    "layer_changes",
    "layer_dispersion",
    "layout_of",
    "printed_scores",
    "select_adapter_support",
    "select_signature",
    "signature_of",
    "vote_counts",
    "weight_importance",
    "weights_digest",
]
