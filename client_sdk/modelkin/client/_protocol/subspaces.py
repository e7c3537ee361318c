"""Calls that store and read data subspaces."""

from __future__ import annotations

from collections.abc import Iterable

from modelkin import wire
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of
from modelkin.client._protocol.calls.requests import Condition
from modelkin.client._protocol.models import read_model
from modelkin.core.subspaces.subspace import Subspace
from modelkin.types.models import ModelInfo

__all__ = ["get", "put"]


def put(
    space: str, model: str, subspace: Subspace, tags: Iterable[str] | None, condition: Condition
) -> Call[ModelInfo]:
    """Stores a data subspace."""
    if not isinstance(subspace, Subspace):
        raise requests.wrong_type("subspace", "a modelkin.Subspace", subspace)
    return Call(requests.put(space, "subspaces", model, subspace, tags, condition), read_model)


def get(space: str, model: str) -> Call[Subspace]:
    """Reads a data subspace."""
    request = requests.get(requests.model_path(space, "subspaces", model), accept=wire.SUBSPACE)
    return Call(request, lambda r: Subspace.from_bytes(content_of(r, wire.SUBSPACE)))
