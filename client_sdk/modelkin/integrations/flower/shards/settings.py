"""The strategies that a ``ShardedStrategy`` can wrap, which need only averages; its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flwr.serverapp.strategy import FedAvg, Strategy

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import Plan
from modelkin.integrations.flower._wrapped_strategies import OF_TREES, check_instance

__all__ = ["check_strategy", "make_plan"]

_ROBUST: Final = "FedAvg with conceal=False and rule='median' or 'trimmed_mean'"

_INSTEAD: Final = {
    "FedMedian": "ShardedStrategy(FedAvg(), conceal=False, rule='median')",
    "FedTrimmedAvg": "ShardedStrategy(FedAvg(), conceal=False, rule='trimmed_mean')",
    "Krum": f"{_ROBUST}, since no party has whole vectors",
    "MultiKrum": f"{_ROBUST}, since no party has whole vectors",
    "Bulyan": f"{_ROBUST}, since no party has whole vectors",
    "QFedAvg": "FedAvg, since weights by each client's loss need each client's model",
    **{name: f"{name} alone, since trees are not averaged" for name in OF_TREES},
    "DifferentialPrivacyServerSideFixedClipping": "LocalDpMod behind ShardMod",
    "DifferentialPrivacyServerSideAdaptiveClipping": "LocalDpMod behind ShardMod",
    "DifferentialPrivacyClientSideFixedClipping": "LocalDpMod behind ShardMod",
    "DifferentialPrivacyClientSideAdaptiveClipping": "LocalDpMod behind ShardMod",
    "AdapterStrategy": "AdapterStrategy alone, since adapters of other ranks have no average",
    "ClusteredStrategy": "ClusteredStrategy(ShardedStrategy(...)), the other way around",
    "LearngeneStrategy": "LearngeneStrategy(ShardedStrategy(...)), the other way around",
    "ShardedStrategy": "one ShardedStrategy",
}
"""The alternatives to strategies that need each client's model."""


def check_strategy(strategy: Strategy) -> FedAvg:
    """Check that a strategy can be wrapped, and return it.

    Raises:
        InvalidParameter: the strategy needs more than the average; names an alternative.
    """
    check_instance(strategy, "strategy")
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
    """Make the plan of a run.

    Raises:
        InvalidParameter: a setting is wrong; names it as the caller knows it.
    """
    try:
        return Plan(num_parameters=num_parameters, **settings)
    except InvalidParameter as error:
        if error.field != "shards":
            raise
        message = str(error).replace("shards", "aggregators", 1)
        raise InvalidParameter(message, field="aggregators") from None
