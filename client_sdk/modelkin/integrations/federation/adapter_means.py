"""``AdapterMeans``: a server's part in averaging adapters of different ranks, for any engine.

A message carries factors by PEFT's names and an alpha beside each pair, so that it says its own
ranks and scales. The server's model is the mean of the differences that they make; each client is
answered in its own ranks and scales.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy.typing as npt

from modelkin.core.adapters import AdapterConfig, needs_config
from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.federation.adapters import (
    Adapter,
    odd_adapters,
    of_rank,
    read_adapter,
    stacked_mean,
    write_adapter,
)
from modelkin.federation.adapters.tensors import (
    Tensors,
    check_ranks,
    config_of,
    ranks_of,
    resized,
    with_alphas,
    without_alphas,
)

__all__ = ["AdapterMeans", "in_own_rank"]

Id = TypeVar("Id", int, str)
Model = dict[str, npt.NDArray[Any]]


class AdapterMeans:
    """The exact mean of clients' adapters, and the answer to each client in its own rank.

    Args:
        config: the configuration of the server's first adapter, unless alphas lie beside it.

    Raises:
        InvalidInput: the configuration is not of LoRA.
    """

    def __init__(self, config: Any = None) -> None:
        self._config = None if config is None else config_of(config)
        self._like: Tensors = {}
        self._layout: Adapter = {}
        self._forms: dict[int, Tensors] = {}
        self.errors: dict[int, float] = {}
        """What the last answer to a client lacks: a share of the model's Frobenius norm, 0 to 1."""

    def begin(self, model: Tensors) -> None:
        """Note the layout of all adapters, which is that of the first round's model.

        Raises:
            InvalidInput: it is no adapter, or nothing says its scale.
        """
        if not self._layout:
            self._like = self._told(model)
            self._layout = read_adapter(self._like)

    def misfits(self, models: Mapping[Id, Tensors]) -> dict[Id, str]:
        """The reasons why some clients' adapters cannot be averaged, by client."""
        read, wrong = dict[Id, Adapter](), dict[Id, str]()
        for client, model in models.items():
            try:
                check_ranks(model)
                read[client] = read_adapter(model)
            except InvalidInput as error:
                wrong[client] = str(error)
        return wrong | odd_adapters(read, self._layout)

    def mean(
        self,
        models: Mapping[Id, Tensors],
        weights: Mapping[Id, float],
        name_of: Callable[[Id], str] = str,
    ) -> Model:
        """The weighted mean of the differences, by the names of the server's adapter.

        Its rank is the sum of the clients' at most, and its scale is the server's.

        Args:
            models: adapters of the server's layout, by client.
            weights: at least one client that counts, each with a weight above 0.
            name_of: a client's name, by which clients are ordered.
        """
        order = sorted(weights, key=lambda client: (name_of(client), client))
        stacked = stacked_mean(
            {place: read_adapter(models[client]) for place, client in enumerate(order)},
            {place: weights[client] for place, client in enumerate(order)},
        )
        found = of_rank(stacked, {name: each.rank for name, each in stacked.items()}).adapter
        ranks = {name: max(1, each.rank) for name, each in found.items()}
        return write_adapter(found, resized(self._like, ranks))

    def remember(self, client: int, model: Tensors) -> None:
        """Note the form of a client's adapter, in which it is answered from now on."""
        self._forms[client] = resized(model, ranks_of(model))

    def answer(self, client: int, model: Tensors) -> Model:
        """A model in a client's own ranks and scales.

        A client that has sent no adapter gets it in the ranks of the server's first one.
        """
        form = self._forms.get(client, self._like)
        cut = of_rank(read_adapter(self._told(model)), ranks_of(form))
        self.errors[client] = cut.error
        return write_adapter(cut.adapter, form)

    def _told(self, model: Tensors) -> Tensors:
        """A model that says its scales."""
        if self._config is None or not needs_config(model):
            return model
        return with_alphas(model, self._config)


def in_own_rank(model: Tensors, config: AdapterConfig) -> Model:
    """A received adapter in a client's own ranks and scale, as PEFT has it, without alphas.

    Raises:
        InvalidInput: it is no adapter that says its scale, or not one of the configuration.
    """
    if needs_config(model):
        raise InvalidParameter(
            "the adapter of this message does not say its scale: does its server average adapters?",
            field="arrays",
        )
    like = without_alphas(resized(model, config))
    return write_adapter(read_adapter(model), like, config)
