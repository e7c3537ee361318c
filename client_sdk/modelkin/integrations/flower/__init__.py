"""Flower: clusters of clients, and averages that show no other party a client's model.

``SupportMod`` is a mod of a ClientApp: it attaches to each training reply the support, or only its
signature, of an importance that the app handed over. ``ClusteredStrategy`` wraps any strategy of a
ServerApp: each round it finds which clients are kin, without a service. ``ShardMod`` and
``ShardedStrategy`` average in shards. See docs/training.md.
"""

from __future__ import annotations

from modelkin.errors import MissingExtra
from modelkin.integrations._federation import RoundClusters

try:
    from modelkin.integrations.flower._shard_mod import ShardMod
    from modelkin.integrations.flower.sharding import RoundReport, ShardedStrategy
    from modelkin.integrations.flower.supports import ClusteredStrategy, SupportMod, hand_over
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "flwr":
        raise
    raise MissingExtra("flwr", "flower") from error

__all__ = [
    "ClusteredStrategy",
    "RoundClusters",
    "RoundReport",
    "ShardMod",
    "ShardedStrategy",
    "SupportMod",
    "hand_over",
]
