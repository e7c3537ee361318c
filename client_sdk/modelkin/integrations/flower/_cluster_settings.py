"""Checks of the arguments of a ``ClusteredStrategy``, before its first message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flwr.serverapp.strategy import Strategy

from modelkin.core.layout import Layout
from modelkin.errors import InvalidParameter
from modelkin.integrations.federation import node_weights
from modelkin.integrations.federation.first_supports import check_forget_after
from modelkin.integrations.federation.kin_robust import KinRobust
from modelkin.integrations.flower._wrapped_strategies import check_instance, tree_strategy
from modelkin.integrations.flower.adapters import AdapterStrategy
from modelkin.integrations.flower.learngenes.strategy import LearngeneStrategy
from modelkin.integrations.flower.shards.strategy import ShardedStrategy
from modelkin.types.vocabulary import ImportanceKind

__all__ = [
    "PATIENCE_S",
    "check_by",
    "check_kinds",
    "check_per_cluster",
    "check_robust",
    "check_trees",
    "check_weights",
    "sharded_inside",
]

PATIENCE_S: Final = 60.0
"""How long a server waits for subspaces, unless it is told."""


def sharded_inside(strategy: Strategy) -> ShardedStrategy | None:
    """The strategy that averages in shards, itself or in a ``LearngeneStrategy``, if one does.

    Raises:
        InvalidParameter: ``ClusteredStrategy`` cannot wrap the strategy.
    """
    check_instance(strategy, "strategy")
    if not isinstance(strategy, Strategy) or hasattr(strategy, "cluster_of"):
        raise InvalidParameter(
            f"a {type(strategy).__name__} cannot be inside ClusteredStrategy: wrap FedAvg or "
            f"another strategy of Flower, a LearngeneStrategy or a ShardedStrategy",
            field="strategy",
        )
    inner = strategy.inner if isinstance(strategy, LearngeneStrategy) else strategy
    return inner if isinstance(inner, ShardedStrategy) else None


def check_kinds(functions: Mapping[str, object], flags: Mapping[str, object]) -> None:
    """Raise :class:`InvalidParameter` for a function that is none, or a flag that is no bool."""
    for name, given in functions.items():
        if given is not None and not callable(given):
            raise InvalidParameter(f"{name} must be a function, not {given!r}", field=name)
    for name, given in flags.items():
        if type(given) is not bool:
            raise InvalidParameter(f"{name} must be True or False, not {given!r}", field=name)


def check_weights(weights: str, by: str, sharded: ShardedStrategy | None) -> None:
    """Raise :class:`InvalidParameter` for a rule of weights that cannot be."""
    node_weights.check_weights(weights, by)
    if sharded is not None and weights != "examples":
        raise InvalidParameter(
            f"weights={weights!r} cannot be combined with a ShardedStrategy inside: members weigh "
            f"their own updates by their examples, since nobody else may see one",
            field="weights",
        )


def check_robust(
    robust: bool | KinRobust, strategy: Strategy, sharded: ShardedStrategy | None, *, both: bool
) -> KinRobust | None:
    """The limits of updates that count, or None where all do.

    Raises:
        InvalidParameter: they are none, or the server cannot see clients' updates.
    """
    found = KinRobust.of(robust)
    if found is None:
        return None
    reasons = {
        "a ShardedStrategy": (sharded is not None, "nobody sees a client's update there"),
        "a LearngeneStrategy": (
            isinstance(strategy, LearngeneStrategy), "clients train layers that it does not see",
        ),
        "an AdapterStrategy": (
            isinstance(strategy, AdapterStrategy), "updates of other ranks have other values",
        ),
        "both": (both, "it does not see the mixture that a client began with"),
    }  # fmt: skip
    for what, (inside, why) in reasons.items():
        if inside:
            raise InvalidParameter(
                f"robust cannot be combined with {what}: the server compares whole updates, and "
                f"{why}",
                field="robust",
            )
    return found


def check_trees(strategy: Strategy, weights: str, *, robust: bool, per_cluster: bool) -> None:
    """Raise :class:`InvalidParameter` for an option of means around a strategy of trees."""
    options = {"per_cluster": per_cluster, "weights": weights != "examples", "robust": robust}
    kind, asked = tree_strategy(strategy), [name for name, is_on in options.items() if is_on]
    if kind is not None and asked:
        raise InvalidParameter(
            f"{asked[0]} cannot be combined with {kind}: trees are not averaged", field=asked[0]
        )


def check_per_cluster(
    strategy: Strategy,
    by: str,
    sharded: ShardedStrategy | None,
    forget_after: int | None,
    *,
    per_cluster: bool,
    both: bool,
) -> None:
    """Raise :class:`InvalidParameter` where options need models of clusters, or exclude them."""
    if both and not per_cluster:
        raise InvalidParameter(
            "both is for per_cluster: without it there is one model", field="both"
        )
    if both and isinstance(strategy, AdapterStrategy):
        raise InvalidParameter(
            "both cannot be combined with an AdapterStrategy: a mean of two adapters' factors is "
            "not that of their differences",
            field="both",
        )
    check_forget_after(forget_after)
    if forget_after is not None and (by == "data" or not per_cluster):
        raise InvalidParameter(
            "forget_after is for per_cluster by supports: no others are kept", field="forget_after"
        )
    if per_cluster and sharded is not None and sharded.has_own_masks:
        raise InvalidParameter(
            "masks='own' cannot be combined with per_cluster: shifts are of one set of "
            "clients; use masks='one'",
            field="masks",
        )


def check_by(
    by: str,
    recluster_every: int | None,
    layout: Layout | None,
    importance: ImportanceKind | None,
    patience: float,
) -> None:
    """Raise :class:`InvalidParameter` for an unknown ``by``, or options of the other way."""
    if by not in ("supports", "data"):
        raise InvalidParameter(f"by must be 'supports' or 'data', not {by!r}", field="by")
    if recluster_every is not None and by != "data":
        raise InvalidParameter(
            "recluster_every is for by='data': supports are clustered each round",
            field="recluster_every",
        )
    if patience != PATIENCE_S and by != "data":
        raise InvalidParameter(
            "patience is for by='data', whose nodes are asked for subspaces: by supports, give "
            "timeout to start(), or leave patience out",
            field="patience",
        )
    if layout is not None and not isinstance(layout, Layout):
        raise InvalidParameter(
            f"layout must be a Layout, as modelkin.torch.layout_of(model) makes, not {layout!r}",
            field="layout",
        )
    if by == "data" and (layout is not None or importance is not None):
        raise InvalidParameter(
            "layout and importance are of supports: leave them out with by='data'",
            field="importance" if layout is None else "layout",
        )
