"""Networks of the package of that name, which is imported where one is built: it takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

__all__ = ["of_transformers"]


def of_transformers(name: str, sizes: Mapping[str, Any]) -> nn.Module:
    """A network with random weights.

    Args:
        name: its class.
        sizes: of its configuration.
    """
    import transformers

    family = getattr(transformers, name)
    network: nn.Module = family(family.config_class(**sizes))
    return network
