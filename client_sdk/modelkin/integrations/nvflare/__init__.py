"""NVFlare: clusters of clients, each with a model, found in the server's own process.

``ClusterClient`` is for a training script with NVFlare's Client API: it sends the support of an
importance, or its signature, and answers questions about the site's data. ``ClusteredFedAvg`` is
the job's controller, and ``KinRobust`` its limits of updates that count. ``ShardClient`` is what a
site demands of averages in shards, in which no party sees its model. See docs/nvflare.md.
"""

from __future__ import annotations

from modelkin.errors import MissingExtra
from modelkin.integrations.federation.kin_robust import KinRobust
from modelkin.integrations.federation.shards.client import ShardClient

try:
    from modelkin.integrations.nvflare.client import ClusterClient
    from modelkin.integrations.nvflare.controller import ClusteredFedAvg
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "nvflare":
        raise
    raise MissingExtra("nvflare", "nvflare") from error

__all__ = ["ClusterClient", "ClusteredFedAvg", "KinRobust", "ShardClient"]
