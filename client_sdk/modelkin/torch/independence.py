"""Checks that a model treats each sample independently, as per-sample gradients require.

A per-sample gradient exists only if the model treats every sample as if it were alone, and in the
same way each time. Known modules that do not are refused by type. Other modules are found by
running a few samples together and one of them alone. The checks never change the model; errors name
the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from modelkin.errors import InvalidParameter
from modelkin.torch.trees import leaves_of, map_leaves

__all__ = ["refuse_dependent_samples", "refuse_known_modules", "samples_second"]

MAX_PROBED_SAMPLES = 8

_BATCH_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
)
_INSTANCE_NORMS = (
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    *(nn.LazyInstanceNorm1d, nn.LazyInstanceNorm2d, nn.LazyInstanceNorm3d),
)
_DROPOUTS = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout),
)

RANDOM_OUTPUT = (
    "the model's output is random, so its importance would be too (dropout in training mode, "
    "mostly): call model.eval() first"
)


def refuse_known_modules(model: nn.Module) -> None:
    """Refuse modules that are known to mix samples or to draw random numbers in their current mode.

    Raises:
        InvalidParameter: names the first such module, the reason, and what to do.
    """
    for name, module in model.named_modules():
        reason = _mixes(module) or _draws(module)
        if reason:
            raise InvalidParameter(
                f"{type(module).__name__} {name or '(the model)'!r} {reason}", field="model"
            )


def _mixes(module: nn.Module) -> str | None:
    if isinstance(module, _BATCH_NORMS) and module.running_mean is None:
        return (
            "has no running statistics and normalises by those of the batch in every mode, so one "
            "sample's gradient depends on the others: use track_running_stats=True, or GroupNorm "
            "or LayerNorm instead"
        )
    if isinstance(module, _BATCH_NORMS) and module.training:
        return (
            "is in training mode and normalises by the statistics of the batch, so one sample's "
            "gradient depends on the others: call model.eval() first"
        )
    if isinstance(module, _INSTANCE_NORMS) and module.track_running_stats and module.training:
        return (
            "is in training mode and would change its running statistics with every batch: "
            "call model.eval() first"
        )
    return None


def _draws(module: nn.Module) -> str | None:
    if not module.training:
        return None
    if isinstance(module, _DROPOUTS):
        probability = module.p
    elif isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        probability = module.dropout
    else:
        probability = float(isinstance(module, nn.RReLU))
    if probability == 0:
        return None
    return (
        "draws random numbers in training mode, so the importance would be random: "
        "call model.eval() first"
    )


def samples_second(model: nn.Module) -> str:
    """A clause that names the first layer with samples in its second dimension; "" without one."""
    for name, module in model.named_modules():
        if getattr(module, "batch_first", True) is False:
            return (
                f"; {type(module).__name__} {name.removeprefix('model.')!r} takes samples in its "
                f"second dimension, where they come first here: give it batch_first=True, or "
                f"transpose in forward="
            )
    return ""


def refuse_dependent_samples(outputs: Callable[[Any], Any], inputs: Any, suspect: str = "") -> None:
    """Refuse a model whose output for a sample changes on repetition, or among other samples.

    Outputs are compared, not losses: a loss may weight the samples of a batch.

    Args:
        outputs: the forward pass, from a batch to the model's output; it must change nothing.
        inputs: the inputs of a batch, tensors of shape ``(n, ...)`` in any nesting, n at least 1.
            The first ``MAX_PROBED_SAMPLES`` of them are used.
        suspect: a clause for the error, see :func:`samples_second`.

    Raises:
        InvalidParameter: the outputs differ by more than rounding.
    """
    alone = outputs(map_leaves(lambda leaf: leaf[:1], inputs))
    if not _agree(alone, outputs(map_leaves(lambda leaf: leaf[:1], inputs))):
        raise InvalidParameter(RANDOM_OUTPUT, field="model")
    some = map_leaves(lambda leaf: leaf[:MAX_PROBED_SAMPLES], inputs)
    together = leaves_of(outputs(some))
    first = [leaf[:1] if _has_rows(leaf) else leaf for leaf in together]
    # A causal model lets the first sample see no other, and the last one all.
    last = [leaf[-1:] if _has_rows(leaf) else leaf for leaf in together]
    alone_last = outputs(map_leaves(lambda leaf: leaf[-1:], some))
    if not (_agree(first, alone) and _agree(last, alone_last)):
        raise InvalidParameter(
            "the model's output for a sample depends on the other samples of its batch, so there "
            "is no gradient of one sample alone: some module mixes samples (a batch statistic, "
            f"attention or a mean across the first dimension){suspect}",
            field="model",
        )


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0


def _agree(left: Any, right: Any) -> bool:
    """Whether all floating-point tensors of equal shape are equal up to rounding.

    Batches of different sizes run through different matrix products, so they are not equal bit for
    bit. Mixing samples changes outputs by far more than the square root of the machine epsilon.
    """
    for a, b in zip(leaves_of(left), leaves_of(right), strict=False):
        if not (
            _has_rows(a)
            and _has_rows(b)
            and a.is_floating_point()
            and a.shape == b.shape
            and a.numel()
        ):
            continue
        scale = torch.maximum(a.abs().amax(), b.abs().amax())
        tolerance = torch.finfo(a.dtype).eps ** 0.5 * scale
        if bool(
            ((a - b).abs() > tolerance).any()
        ):  # NaN passes: it is reported later, with its parameter
            return False
    return True
