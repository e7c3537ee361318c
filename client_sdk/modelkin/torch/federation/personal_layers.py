"""``head_then_trunk``: train private layers first, then shared ones, as FedRep has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from modelkin.federation.learngenes.layers import LayerChoice
from modelkin.torch.layout import parameters_of

__all__ = ["head_then_trunk"]


def head_then_trunk(
    model: nn.Module,
    *,
    depth: int | None = None,
    share: float | None = None,
    tensors: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    order: Sequence[str] = (),
) -> Iterator[list[nn.Parameter]]:
    """Yield the parameters of each of two phases: the private layers, then the shared ones.

        for parameters, epochs in zip(head_then_trunk(model), (5, 1), strict=True):
            optimizer = torch.optim.SGD(parameters, lr=0.1)
            ...  # train for so many epochs

    The others are frozen in the meantime, and take no gradients. After the last phase, or where the
    loop is left, each parameter requires gradients as before; one that was frozen is in no phase.
    Running statistics of batch normalisation change in both phases, but in ``eval()``.

    The choice of layers is that of ``modelkin.integrations.flower.LearngeneMod``: give both the
    same. Without any all layers but the last are shared.

    Args:
        model: the client's whole model.
        depth: the number of shared layers, from the input on.
        share: a share of the bytes: as many layers from the input on as fit are shared.
        tensors: shell patterns of the names of shared parameters.
        exclude: shell patterns of names that are never shared.
        order: shell patterns of layers, from the input on, where that is not their order.

    Raises:
        InvalidParameter: the choice does not fit the model.

    Source: FedRep, Collins et al., "Exploiting shared representations for personalized federated
    learning", ICML 2021, Algorithm 1.
    """
    parameters = parameters_of(model)
    sizes = [(name, each.numel() * each.element_size()) for name, each in parameters.items()]
    chosen = LayerChoice(depth, share, tensors, exclude, order).choose(sizes)
    trunk = {name for layer in chosen for name in layer.tensors}
    trained = {name: each for name, each in parameters.items() if each.requires_grad}
    phases = [
        [each for name, each in trained.items() if (name in trunk) is shared]
        for shared in (False, True)
    ]
    return _phases(phases)


def _phases(phases: Sequence[list[nn.Parameter]]) -> Iterator[list[nn.Parameter]]:
    everything = [each for phase in phases for each in phase]
    try:
        for phase in phases:
            for each in everything:
                each.requires_grad_(False)
            for each in phase:
                each.requires_grad_(True)
            yield phase
    finally:
        for each in everything:
            each.requires_grad_(True)
