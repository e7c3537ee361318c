"""The stored models of a source, and the record of how they were made.

The attribute ``hub`` of a model records its source, its revision and how its support was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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

__all__ = [
    "BASE_NAMES",
    "HUB",
    "Held",
    "StoredModel",
    "address_of",
    "base_names",
    "find_held",
    "hub_of",
    "is_of_hub",
    "require_free",
]

HUB: Final = "hub"
"""The attribute that says where a model comes from."""
BASE_NAMES: Final = "bases"
"""The part of it with the names of bases on the hub, by the names that the publisher wrote."""


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
            return self.weight is None and _has(self.difference, made.difference_recipes)
        if self.weight is None or not self.weight.has(made.recipe):
            return False
        hub = hub_of(self.weight.model)
        difference = hub.get("delta")
        if not isinstance(difference, dict):  # clients may change attributes
            return False
        if made.difference_recipe is not None:
            if hub.get("delta_recipe") not in made.difference_recipes:
                return False
            return not difference.get("space") or _has(self.difference, made.difference_recipes)
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


def base_names(held: Iterable[Held]) -> dict[str, str]:
    """The names of bases that earlier syncs of a model have found, by the names as written."""
    found: dict[str, str] = {}
    for each in held:
        for _, stored in each:
            recorded = hub_of(stored.model).get(BASE_NAMES)
            if isinstance(recorded, dict):  # clients may change attributes
                found.update((k, v) for k, v in recorded.items() if isinstance(v, str))
    return found


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


def _has(stored: StoredModel | None, recipes: Sequence[str]) -> bool:
    return stored is not None and any(map(stored.has, recipes))


def _is_of(model: ModelRecord, source: OpenSource) -> bool:
    """Whether a model comes from this source, or from another source of the same hub."""
    hub = hub_of(model)
    return hub.get("source") == source.id or is_of_hub(hub, source)


def is_of_hub(hub: Mapping[str, Any], source: OpenSource) -> bool:
    """Whether the record of a model's hub names the hub of a source."""
    return (hub.get("kind"), hub.get("url")) == (source.kind, address_of(source))
