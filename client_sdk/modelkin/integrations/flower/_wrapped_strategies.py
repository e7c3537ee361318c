"""What holds of the strategies that modelkin's strategies wrap."""

from __future__ import annotations

from typing import Final

from flwr.serverapp.strategy import FedAvg, Strategy

from modelkin.errors import InvalidParameter

__all__ = ["OF_TREES", "averages_as_sent", "check_instance", "tree_strategy"]

OF_TREES: Final = ("FedXgbBagging", "FedXgbCyclic")
"""The strategies derived from FedAvg whose arrays are the bytes of trees: nothing is averaged."""


def check_instance(value: object, field: str) -> None:
    """Raise :class:`InvalidParameter` for a class in place of an instance of it."""
    if isinstance(value, type):
        raise InvalidParameter(
            f"{value.__name__} is a class: give an instance, {value.__name__}()", field=field
        )


def tree_strategy(strategy: Strategy) -> str | None:
    """The name of the strategy of trees that a strategy is, or is derived from, if it is one."""
    return next(
        (kind.__name__ for kind in type(strategy).__mro__ if kind.__name__ in OF_TREES), None
    )


def averages_as_sent(strategy: Strategy) -> bool:
    """Whether a strategy needs replies of the arrays that were sent, as FedAvg does.

    An aggregation that is not Flower's own may take others: a part of them, or those of a smaller
    network. It judges its replies itself.
    """
    is_flowers = type(strategy).aggregate_train.__module__.partition(".")[0] == "flwr"
    return is_flowers and isinstance(strategy, FedAvg) and tree_strategy(strategy) is None
