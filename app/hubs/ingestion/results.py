"""The findings of a sync, before anything of it is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from app.fingerprints.records import SCHEME
from app.hubs.clients.protocol import HubRevision
from app.hubs.ingestion.bases import Base
from app.hubs.ingestion.files.checkpoint_fetcher import files_digest
from app.hubs.ingestion.spaces.targets import ResolvedSpace
from app.hubs.records import ImportanceName
from app.hubs.service import OpenSource
from app.models.catalog.puts import PreparedSupport
from modelkin.core.support import Support
from modelkin.errors import ModelkinError

__all__ = ["IngestResult", "PreparedModel", "SelectedModel", "adapter_recipe", "weights_recipe"]

_VERSION = "3"
"""The version of the selection: it changes when the same input would give another support."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The findings of a sync.

    Attributes:
        moved_from: the previous name of the repository on the hub.
        revision: the revision of the model, or of one component of a pipeline.
        adapter: whether the model is an adapter.
        refusal: why no support of it can be made; None where one can, as far as is known.
    """

    source: OpenSource
    sync: int
    moved_from: str | None
    revision: HubRevision
    base: Base
    job: str
    adapter: bool = False
    refusal: ModelkinError | None = None

    @property
    def name(self) -> str:
        """The name of the model here: that on the hub, and of its component."""
        return self.revision.model_name

    @property
    def recipe(self) -> str:
        """A digest that is the same for the same support of the weights."""
        return weights_recipe(self.source, self.revision)

    @property
    def fingerprint_recipe(self) -> str:
        """A digest that is the same for the same fingerprint, whatever the source says."""
        return _digest([SCHEME, files_digest(self.revision)])

    @property
    def difference_recipe(self) -> str | None:
        """A digest that is the same for the same difference; None for weights without a base."""
        return next(iter(self.difference_recipes), None)

    @property
    def difference_recipes(self) -> tuple[str, ...]:
        """The digests of one difference: under the base's present name, and under the written one.

        A base that has another name by now is the same base.
        """
        if self.adapter:
            return (adapter_recipe(self.source, self.revision),)
        base = self.base.revision
        if base is None:
            return ()
        names = dict.fromkeys([base.name, *(each.written for each in self.base.named)])
        parts = _parts(self.source, self.revision)
        return tuple(_digest([*parts, name, files_digest(base)]) for name in names)


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


def weights_recipe(source: OpenSource, revision: HubRevision) -> str:
    """A digest that is the same for the same support of a revision's weights."""
    return _digest(_parts(source, revision))


def adapter_recipe(source: OpenSource, revision: HubRevision) -> str:
    """A digest that is the same for the same support of a revision that is an adapter."""
    named = ", ".join(revision.base_models) or source.base_model
    return _digest([*_parts(source, revision), f"adapter of {named}"])


def _parts(source: OpenSource, revision: HubRevision) -> list[str]:
    """The values that a support depends on, except the support size of its space."""
    return [_VERSION, files_digest(revision), source.space, *source.exclude]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
