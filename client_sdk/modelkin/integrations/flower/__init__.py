"""Flower: clusters of clients, and averages that show no other party a client's model.

``SupportMod`` is a mod of a ClientApp: it attaches to each training reply the support, or only its
signature, of an importance that the app handed over. ``DataMod`` describes a node's data, before
any training. ``ClusteredStrategy`` wraps any strategy of a ServerApp, and finds kin among its
clients, without a service. ``MixMod`` makes one model of a cluster's and the common one.
``BufferedStrategy`` waits for no client. ``LearngeneMod`` and ``LearngeneStrategy`` share a part of
the layers. ``ShardMod`` and ``ShardedStrategy`` average in shards. ``AdapterMod`` and
``AdapterStrategy`` average LoRA adapters of different ranks. See docs/flower.md.
"""

from __future__ import annotations

from modelkin.errors import MissingExtra
from modelkin.integrations.federation.cluster_history import RoundClusters
from modelkin.integrations.federation.kin_robust import KinRobust

try:
    from modelkin.integrations.flower._grids import RoundCosts
    from modelkin.integrations.flower.adapters import AdapterMod, AdapterStrategy
    from modelkin.integrations.flower.buffered import BufferedStep, BufferedStrategy
    from modelkin.integrations.flower.clusters import ClusteredStrategy
    from modelkin.integrations.flower.data import DataMod
    from modelkin.integrations.flower.learngenes.mod import LearngeneMod
    from modelkin.integrations.flower.learngenes.strategy import LearngeneRound, LearngeneStrategy
    from modelkin.integrations.flower.mixing import MixMod
    from modelkin.integrations.flower.shards.mod import ShardMod
    from modelkin.integrations.flower.shards.strategy import RoundReport, ShardedStrategy
    from modelkin.integrations.flower.supports import SupportMod, hand_over
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "flwr":
        raise
    raise MissingExtra("flwr", "flower") from error

__all__ = [
    "AdapterMod",
    "AdapterStrategy",
    "BufferedStep",
    "BufferedStrategy",
    "ClusteredStrategy",
    "DataMod",
    "KinRobust",
    "LearngeneMod",
    "LearngeneRound",
    "LearngeneStrategy",
    "MixMod",
    "RoundClusters",
    "RoundCosts",
    "RoundReport",
    "ShardMod",
    "ShardedStrategy",
    "SupportMod",
    "hand_over",
]
