"""``python -m benchmarks.orders``: compare orders of reading with the order of first use.

Each network is called once, and the parameters are noted as functions of torch are given them. An
order is as wrong as the share of pairs of tensors, of different layers, that it has the other way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from benchmarks.orders.architectures import Network, networks
from modelkin.core.matching.network_order import NetworkOrder
from modelkin.federation.learngenes.layers import natural_order

_ORDERS = ("by code point", "numbers by value", "as names suggest", "of modules")
_FEW = 0.01


class _Uses(TorchFunctionMode):
    """Notes parameters in the order of their first use."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._names = {id(each): name for name, each in module.named_parameters()}
        self.found: dict[str, None] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # Attributes such as shape and dtype are read of any parameter, at any time.
        if getattr(function, "__name__", "") not in {"__get__", "dim", "size", "numel"}:
            self._note([*args, *(kwargs or {}).values()])
        return function(*args, **(kwargs or {}))

    def _note(self, given: Sequence[Any]) -> None:
        for each in given:
            if isinstance(each, list | tuple):
                self._note(each)
            elif id(each) in self._names:
                self.found.setdefault(self._names[id(each)])


def _used(network: Network) -> list[str]:
    """The names of the parameters that a call uses, in the order of first use."""
    uses = _Uses(network.module)
    with torch.no_grad(), uses:
        network.call()
    return list(uses.found)


def _wrong(order: Sequence[str], used: Sequence[str]) -> float:
    places = {name: place for place, name in enumerate(used)}
    names = [name for name in order if name in places]
    at = np.array([places[name] for name in names])
    _, layers = np.unique([_layer(name) for name in names], return_inverse=True)
    before = np.triu(layers[:, None] != layers[None, :])
    return float((before & (at[:, None] > at[None, :])).sum() / before.sum())


def _layer(name: str) -> str:
    """The name up to the first number, or that of the module."""
    numbered = re.match(r".*?\.\d+(?=\.)", name)
    return numbered[0] if numbered else name.rpartition(".")[0]


def main() -> None:
    """Print the shares of each network, and how many networks each order has nearly right."""
    right = np.zeros(len(_ORDERS), int)
    print("TENSORS", *(f"{order:>16}" for order in _ORDERS), "  NETWORK", sep="  ")
    total = 0
    for network in networks():
        used = _used(network)
        modules = [name for name, _ in network.module.named_parameters()]
        names = sorted(modules)
        read = NetworkOrder.of(names).arrange(names)
        shares = [_wrong(each, used) for each in (names, natural_order(names), read, modules)]
        total += 1
        right += np.array(shares) <= _FEW
        print(
            f"{len(used):7}", *(f"{each:16.1%}" for each in shares), f"  {network.name}", sep="  "
        )
    print(f"{total:7}", *(f"{each:16}" for each in right), f"  at most {_FEW:.0%} wrong", sep="  ")


if __name__ == "__main__":
    main()
