"""What ``ClusteredFedAvg`` and ``ClusterClient`` say to each other, in the meta of an FLModel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nvflare.apis.fl_constant import FLMetaKey
from nvflare.client import FLModel

from modelkin.integrations.federation.data_clusters import ASK

__all__ = ["EXAMPLES", "META", "asks_for_subspace", "examples_of", "said"]

META: Final = "modelkin"
"""The name of modelkin's values in the meta of messages of both directions."""

EXAMPLES: Final = FLMetaKey.NUM_STEPS_CURRENT_ROUND
"""The name of the number of examples in the meta of an answer."""


def said(model: FLModel) -> Mapping[str, Any] | None:
    """Modelkin's values in a message, unchecked; None where there are none."""
    values = (model.meta or {}).get(META)
    return values if isinstance(values, Mapping) else None


def examples_of(model: FLModel) -> object:
    """The number of examples that an answer claims, unchecked; None where it says nothing."""
    found: object = (model.meta or {}).get(EXAMPLES)
    return found


def asks_for_subspace(model: FLModel) -> bool:
    """Whether a message asks for a subspace, and for no training."""
    return (said(model) or {}).get("step") == ASK
