"""Averages of models of which no party sees one: the protocol, without a transport.

Each member cuts its update into shards and seals shard a to aggregator a, who averages it; joined,
the results are the average of all. Concealed, an aggregator sees sums alone. Flower, NVFlare, a
group of processes and the hub carry it; other transports build on this. docs/sharing.md says who
learns what.

Source: ERIS, "Enhancing privacy and communication efficiency in serverless federated learning".
"""

from __future__ import annotations

from modelkin.federation.shards.costs import client_bytes, distribution_time
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.leakage import leakage_bound
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Party, Roster, Round
from modelkin.federation.sharing.aggregator import Aggregator, Combined
from modelkin.federation.sharing.assembly import assemble, assemble_piece, open_result
from modelkin.federation.sharing.member import Member, SentCell
from modelkin.federation.sharing.sealing import new_key, public_key

__all__ = [
    "Aggregator",
    "Combined",
    "Member",
    "Partition",
    "Party",
    "Plan",
    "Roster",
    "Round",
    "SentCell",
    "assemble",
    "assemble_piece",
    "client_bytes",
    "distribution_time",
    "leakage_bound",
    "least_power",
    "new_key",
    "open_result",
    "public_key",
]
