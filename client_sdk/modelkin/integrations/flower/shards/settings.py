"""What a ``ShardedStrategy`` can be made of: strategies that need averages alone, and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flwr.serverapp.strategy import FedAvg, Strategy

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import Plan

__all__ = ["check_strategy", "make_plan"]

_ROBUST: Final = "FedAvg with conceal=False and rule='median' or 'trimmed_mean'"

_INSTEAD: Final = {
    "FedMedian": "ShardedStrategy(FedAvg(), conceal=False, rule='median')",
    "FedTrimmedAvg": "ShardedStrategy(FedAvg(), conceal=False, rule='trimmed_mean')",
    "Krum": f"{_ROBUST}, since no party has whole vectors",
    "MultiKrum": f"{_ROBUST}, since no party has whole vectors",
    "Bulyan": f"{_ROBUST}, since no party has whole vectors",
    "QFedAvg": "FedAvg, since weights by each client's loss need each client's model",
    "FedXgbBagging": "FedXgbBagging alone, since trees are not averaged",
    "FedXgbCyclic": "FedXgbCyclic alone, since trees are not averaged",
    "DifferentialPrivacyServerSideFixedClipping": "LocalDpMod behind ShardMod",
    "DifferentialPrivacyServerSideAdaptiveClipping": "LocalDpMod behind ShardMod",
    "DifferentialPrivacyClientSideFixedClipping": "LocalDpMod behind ShardMod",
    "DifferentialPrivacyClientSideAdaptiveClipping": "LocalDpMod behind ShardMod",
    "ClusteredStrategy": "ClusteredStrategy(ShardedStrategy(...)), the other way around",
    "ShardedStrategy": "one ShardedStrategy",
}
"""What to use for strategies that need each client's model."""


def check_strategy(strategy: Strategy) -> FedAvg:
    """A strategy that can be inside.

    Raises:
        InvalidParameter: it needs more than the average; says what to use instead.
    """
    for kind in type(strategy).__mro__:
        if kind.__name__ in _INSTEAD:
            raise InvalidParameter(
                f"{kind.__name__} cannot be inside ShardedStrategy, where it gets the average "
                f"alone: use {_INSTEAD[kind.__name__]}",
                field="strategy",
            )
    if not isinstance(strategy, FedAvg):
        raise InvalidParameter(
            f"{type(strategy).__name__} cannot be inside ShardedStrategy: use FedAvg, or a "
            f"strategy derived from it that needs the average alone",
            field="strategy",
        )
    return strategy


def make_plan(num_parameters: int, settings: Mapping[str, Any]) -> Plan:
    """The plan of a run.

    Raises:
        InvalidParameter: by the name that the caller knows.
    """
    try:
        return Plan(num_parameters=num_parameters, **settings)
    except InvalidParameter as error:
        if error.field != "shards":
            raise
        message = str(error).replace("shards", "aggregators", 1)
        raise InvalidParameter(message, field="aggregators") from None
