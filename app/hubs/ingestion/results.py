"""The findings of a sync, before anything of it is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from app.hubs.clients.protocol import HubRevision
from app.hubs.ingestion.bases import Base
from app.hubs.ingestion.checkpoint_fetcher import fingerprint
from app.hubs.ingestion.space_resolver import ResolvedSpace
from app.hubs.records import ImportanceName
from app.hubs.service import OpenSource
from app.models.catalog.puts import PreparedSupport
from modelkin.core.support import Support
from modelkin.core.weights import Weights

__all__ = ["IngestResult", "PreparedModel", "SelectedModel"]

_VERSION = "3"
"""The version of the selection: it changes when the same input would give another support."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The findings of a sync.

    Attributes:
        moved_from: the previous name of the repository on the hub.
        revision: the revision of the model, or of one component of a pipeline.
        adapter: whether the model is a LoRA adapter.
        weights: the digests of its weights; None before they were read.
    """

    source: OpenSource
    sync: int
    moved_from: str | None
    revision: HubRevision
    base: Base
    job: str
    adapter: bool = False
    weights: Weights | None = None

    @property
    def name(self) -> str:
        """The name of the model here: that on the hub, and of its component."""
        return self.revision.model_name

    @property
    def recipe(self) -> str:
        """A digest that is the same for the same support of the weights."""
        return _digest(self._parts())

    @property
    def difference_recipe(self) -> str | None:
        """A digest that is the same for the same difference; None for weights without a base."""
        if self.adapter:
            named = self.revision.base_model or self.source.base_model
            return _digest([*self._parts(), f"adapter of {named}"])
        base = self.base.revision
        return None if base is None else _digest([*self._parts(), base.name, fingerprint(base)])

    def _parts(self) -> list[str]:
        """The values that a support depends on, except the support size of its space."""
        source = self.source
        return [_VERSION, fingerprint(self.revision), source.space, *source.exclude]


@dataclass(frozen=True, slots=True)
class SelectedModel:
    """A support that was selected, and its space."""

    importance: ImportanceName
    placed: ResolvedSpace
    support: Support


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A selected support, ready to be stored."""

    importance: ImportanceName
    placed: ResolvedSpace
    content: PreparedSupport


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
