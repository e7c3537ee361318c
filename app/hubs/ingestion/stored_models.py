"""The stored models of a source, and the record of how they were made.

The attribute ``hub`` of a model records its source, its revision and how its support was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.hubs.ingestion.results import IngestResult
from app.hubs.records import ImportanceName, Place
from app.hubs.service import OpenSource
from app.infra.db.database import Reader
from app.infra.errors import Conflict
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces

__all__ = ["HUB", "Held", "StoredModel", "address_of", "find_held", "hub_of", "require_free"]

HUB: Final = "hub"
"""The attribute that says where a model comes from."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One support of a hub's model, as it is stored here."""

    space: SpaceRecord
    model: ModelRecord

    def has(self, recipe: str | None) -> bool:
        """Whether its support was made by this recipe."""
        return self.model.kind == "support" and hub_of(self.model).get("recipe") == recipe


@dataclass(frozen=True, slots=True)
class Held:
    """The supports of a hub's model here: of its weights, of its difference, or of both."""

    weight: StoredModel | None
    difference: StoredModel | None

    def __iter__(self) -> Iterator[tuple[ImportanceName, StoredModel]]:
        if self.weight is not None:
            yield "weight", self.weight
        if self.difference is not None:
            yield "delta", self.difference

    @property
    def place(self) -> Place:
        """The place where the supports are stored."""
        [(_, first), *_] = self
        return Place(
            first.model.name,
            None if self.weight is None else self.weight.space.name,
            None if self.difference is None else self.difference.space.name,
        )

    def is_made_like(self, made: IngestResult) -> bool:
        """Whether making its supports again would have the same result."""
        if made.adapter or made.source.importance == "delta":
            return self.weight is None and _has(self.difference, made.difference_recipe)
        if self.weight is None or not self.weight.has(made.recipe):
            return False
        hub = hub_of(self.weight.model)
        difference = hub.get("delta")
        if not isinstance(difference, dict):  # clients may change attributes
            return False
        if made.difference_recipe is not None:
            if hub.get("delta_recipe") != made.difference_recipe:
                return False
            return not difference.get("space") or _has(self.difference, made.difference_recipe)
        # A base that is gone may have been there before: the difference is as good as it was then.
        base = str(difference.get("base")).rpartition("@")[0]
        return self.difference is None or base == made.base.lacking


def find_held(session: Reader, source: OpenSource, place: Place) -> Held | None:
    """The supports of a source's model that are stored at a place; None without any."""
    held = Held(
        _find_stored(session, source, place.space, place.model),
        _find_stored(session, source, place.delta_space, place.model),
    )
    return held if any(held) else None


def require_free(session: Reader, space: SpaceRecord, made: IngestResult) -> None:
    """Refuse to replace the model of another hub; a model that a client has put is replaced.

    Raises:
        Conflict: another hub's model has the name.
    """
    current = models.find_model(session, space, made.name)
    if current is None or not hub_of(current):
        return
    if hub_of(current).get("component") != made.revision.component:
        raise Conflict(
            f"space {space.name!r} holds a model {made.name!r} already, which is "
            f"{hub_of(current).get('model')!r} of {hub_of(current).get('url')} and not a component "
            f"of that name: give this source a space of its own, or delete that model"
        )
    if not _is_of(current, made.source):
        raise Conflict(
            f"space {space.name!r} holds a model {made.name!r} from {hub_of(current).get('url')} "
            f"already: give this source a space of its own, or delete that model"
        )


def hub_of(model: ModelRecord) -> Mapping[str, Any]:
    """The record of a model's hub; empty for a model that comes from none."""
    hub = model.attributes.get(HUB)
    return hub if isinstance(hub, dict) else {}


def address_of(source: OpenSource) -> str:
    """The address of a source's hub, in one spelling."""
    return (source.url or "").rstrip("/")


def _find_stored(
    session: Reader, source: OpenSource, space_name: str | None, name: str
) -> StoredModel | None:
    space = None if space_name is None else spaces.find_space(session, source.tenant, space_name)
    model = None if space is None else models.find_model(session, space, name)
    if space is None or model is None or not _is_of(model, source):
        return None
    return StoredModel(space, model)


def _has(stored: StoredModel | None, recipe: str | None) -> bool:
    return stored is not None and recipe is not None and stored.has(recipe)


def _is_of(model: ModelRecord, source: OpenSource) -> bool:
    """Whether a model comes from this source, or from another source of the same hub."""
    hub = hub_of(model)
    if hub.get("source") == source.id:
        return True
    return (hub.get("kind"), hub.get("url")) == (source.kind, address_of(source))
