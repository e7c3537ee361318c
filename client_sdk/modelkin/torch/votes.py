"""Votes of samples for the parameters that each sample moves most: sums for private supports."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from modelkin.core.importance import Importance, Origin, with_origin
from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.torch.batches import batches, rows_of
from modelkin.torch.gradients import Forward, LossFunction, SampleGradients, Tensors
from modelkin.torch.independence import refuse_known_modules
from modelkin.torch.layout import layout_by_name
from modelkin.torch.squares import chunk_size
from modelkin.torch.vector import readable_parameters, trainable_of

__all__ = ["vote_counts"]

_COPIES = 3
"""The copies of a chunk's gradients in memory at a time: by tensor, as rows, and as sizes."""


@torch.inference_mode(False)
def vote_counts(
    model: nn.Module,
    loss_fn: LossFunction,
    loader: Iterable[Any],
    votes: int,
    *,
    forward: Forward | None = None,
    max_memory: int = 2**30,
    vectorize: bool = True,
) -> Tensor:
    """Count, for each parameter, the samples that have it among the V that they move most.

    One sample more or less changes V counts by 1, at most: a vector of length ``V ** 0.5``. That is
    the clip that :func:`modelkin.private_support` needs, and no sample can count more by a larger
    loss. A sample with fewer than V gradients other than zero has fewer votes. A quarter of K is a
    good V (docs/privacy.md).

    Args:
        model: see :func:`fisher_importance`, also for ``loss_fn`` and ``loader``.
        votes: V, 1 to the number of trainable parameters. Choose it independently of the samples.
        forward: see :func:`fisher_importance`, also for ``max_memory``.
        vectorize: see there. Samples that run together may change the last bits of each other's
            gradients, and so move a vote between two parameters that are otherwise equal. False
            excludes that, and is slower.

    Returns:
        int64 of shape ``(M,)`` on the device of the model's first parameter, in the order of
        ``layout_of(model)``, which is attached to it; 0 for frozen parameters.

    Raises:
        InvalidParameter: votes is out of its range, or as :func:`fisher_importance`.
        InvalidImportance: a gradient is NaN or infinite.
    """
    parameters = readable_parameters(model)
    trainable = trainable_of(parameters)
    chunk = max(1, chunk_size(trainable, max_memory) // _COPIES)
    votes = _check_votes(votes, sum(p.numel() for p in trainable.values()))
    refuse_known_modules(model)
    gradients = SampleGradients(model, loss_fn, forward, dict(trainable), vectorize)
    device, seen = next(iter(parameters.values())).device, 0
    counts = {
        name: torch.zeros(p.numel(), dtype=torch.int64, device=device)
        for name, p in parameters.items()
    }
    for inputs, targets, n in batches(loader, device):
        if not seen:
            gradients.probe(inputs, targets)
        for start in range(0, n, chunk):
            part = slice(start, start + chunk)
            for found in gradients.of(rows_of(inputs, part), rows_of(targets, part)):
                _count(counts, found, votes)
        seen += n
    if not seen:
        raise InvalidParameter("the loader is empty: votes need samples", field="loader")
    layout = layout_by_name(parameters)
    return with_origin(torch.cat(list(counts.values())), Origin(Importance.of("other"), layout))


@torch.no_grad()
def _count(counts: Mapping[str, Tensor], gradients: Tensors, votes: int) -> None:
    """Add the votes of some samples, whose gradients are ``(rows, *shape)`` each."""
    names = [name for name in counts if name in gradients]
    rows = torch.cat([gradients.pop(name).flatten(1) for name in names], dim=1).abs_()
    if not bool(torch.isfinite(rows).all()):
        raise InvalidImportance(
            "the gradient of a sample is NaN or infinite: check its loss", field="model"
        )
    most = rows.topk(votes, dim=1, sorted=False)
    chosen = most.indices[most.values > 0]
    added = torch.bincount(chosen, minlength=rows.shape[1])
    sizes = [counts[name].numel() for name in names]
    for name, piece in zip(names, torch.split(added, sizes), strict=True):
        counts[name] += piece


def _check_votes(votes: Any, most: int) -> int:
    try:
        number = 0 if isinstance(votes, bool) else operator.index(votes)
    except TypeError:
        number = 0
    if not 1 <= number <= most:
        raise InvalidParameter(f"votes must be 1 to {most}, not {votes!r}", field="votes")
    return number
