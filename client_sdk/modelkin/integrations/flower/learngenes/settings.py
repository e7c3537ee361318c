"""Checks of the arguments of a ``LearngeneStrategy``, before its first message."""

from __future__ import annotations

from typing import Any

from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes.aggregate import check_min_members
from modelkin.integrations.federation.node_weights import BY_SUPPORT, node_weights
from modelkin.integrations.flower._wrapped_strategies import check_instance
from modelkin.integrations.flower.adapters import AdapterStrategy
from modelkin.integrations.flower.shards.strategy import ShardedStrategy

__all__ = ["check_inner", "check_tighten", "check_weights"]


def check_weights(weights: Any) -> None:
    """Raise :class:`InvalidParameter` unless ``weights`` is a rule that needs no supports."""
    node_weights(weights)
    if weights in BY_SUPPORT:
        raise InvalidParameter(
            f"weights={weights!r} needs supports: give it to the ClusteredStrategy around",
            field="weights",
        )


def check_tighten(tighten: Any, *, sharded: bool) -> float:
    """Check the share of rounds in which sharing tightens; None means .4, or 0 with shards.

    Raises:
        InvalidParameter: the share is not 0 to 1, or above 0 with shards.
    """
    if tighten is None:
        return 0.0 if sharded else 0.4
    if isinstance(tighten, bool) or not isinstance(tighten, int | float) or not 0 <= tighten <= 1:
        raise InvalidParameter(f"tighten must be 0 to 1, not {tighten!r}", field="tighten")
    if tighten and sharded:
        raise InvalidParameter(
            "tighten cannot be combined with a ShardedStrategy inside: shards are of one layout in "
            "all rounds; use tighten=0",
            field="tighten",
        )
    return float(tighten)


def check_inner(strategy: Any, min_members: int, weights: str) -> None:
    """Raise :class:`InvalidParameter` where a strategy cannot be inside."""
    check_min_members(min_members)
    check_instance(strategy, "strategy")
    if hasattr(strategy, "cluster_of"):
        raise InvalidParameter(
            "put LearngeneStrategy inside ClusteredStrategy, not around it", field="strategy"
        )
    if hasattr(strategy, "costs"):
        raise InvalidParameter(
            "LearngeneStrategy cannot be inside LearngeneStrategy: use one", field="strategy"
        )
    if isinstance(strategy, AdapterStrategy):
        raise InvalidParameter(
            "AdapterStrategy cannot be inside LearngeneStrategy, which shares layers: use it alone "
            "or in ClusteredStrategy",
            field="strategy",
        )
    if not isinstance(strategy, ShardedStrategy):
        return
    if strategy.min_members < min_members:
        raise InvalidParameter(
            f"min_members is {min_members}, and {strategy.min_members} of the ShardedStrategy "
            f"inside: give it as many",
            field="min_members",
        )
    if weights != "examples":
        raise InvalidParameter(
            "weights='equal' cannot be combined with a ShardedStrategy inside: members weigh their "
            "own updates by their examples",
            field="weights",
        )
