"""Declared bases follow a model of a hub to its new name, so that its children keep their base.

The children's cards still have the old name, which another model may take. So each child records
what the name stood for, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from app.hubs.ingestion.results import IngestResult
from app.hubs.ingestion.stored_models import BASE_NAMES, HUB, hub_of, is_of_hub
from app.hubs.service import OpenSource
from app.infra.db.database import Reader, Writer
from app.models.catalog.records import DeclaredBases, ModelRecord
from app.models.catalog.repositories import bases, model_writes, models
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces

__all__ = ["rename_bases", "renames_of", "spaces_declaring"]


def renames_of(made: IngestResult, components: Iterable[str | None]) -> dict[str, str]:
    """The new names of a repository that has moved and of its components, by the old ones."""
    old, new = made.moved_from, made.revision.name
    parts = {"", *(f"/{component}" for component in components if component is not None)}
    return {} if old is None else {f"{old}{part}": f"{new}{part}" for part in parts}


def spaces_declaring(
    session: Reader, source: OpenSource, names: Collection[str]
) -> list[SpaceRecord]:
    """The spaces of the source's tenant with models that declare one of some bases."""
    found = bases.spaces_declaring(session, source.tenant.id, names) if names else []
    return [space for i in found if (space := spaces.find_space_by_id(session, i)) is not None]


def rename_bases(
    session: Writer,
    source: OpenSource,
    renames: Mapping[str, str],
    involved: Iterable[SpaceRecord],
    holding: Collection[int],
) -> None:
    """Let the models that declare a base declare it by its new name.

    These are the models of the same hub, and others beside the base itself, whose declaration can
    mean no other model.

    Args:
        renames: the new names by the old ones.
        involved: the spaces of :func:`spaces_declaring`, locked.
        holding: the ids of the spaces that hold the base.
    """
    for space in involved:
        ids = bases.ids_declaring(session, space.id, renames)
        children = [
            model
            for model in models.models_by_id(session, ids).values()
            if is_of_hub(hub_of(model), source) or (not hub_of(model) and space.id in holding)
        ]
        if not children:
            continue
        first = spaces.advance(session, space, by=len(children)) - len(children) + 1
        model_writes.update_declarations(
            session,
            [
                (model, _renamed(model, renames), _attributes(model, renames), first + n)
                for n, model in enumerate(children)
            ],
        )
        if (base := space.importance.base) is not None and (new := _of(base, renames)) != base:
            spaces.rename_importance_base(session, space, new)


def _renamed(model: ModelRecord, renames: Mapping[str, str]) -> DeclaredBases:
    names = dict.fromkeys(renames.get(name, name) for name in model.bases)
    return DeclaredBases(tuple(names), model.base_relation)


def _attributes(model: ModelRecord, renames: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of a model, of which the record of the hub names the base by its new name."""
    hub = dict(hub_of(model))
    if not hub:
        return model.attributes
    names = {text: _of(name, renames) for text, name in _mapping(hub.get(BASE_NAMES)).items()}
    hub[BASE_NAMES] = {**renames, **names}
    hub["base"] = _of(hub.get("base"), renames)
    difference = _mapping(hub.get("delta"))
    if "base" in difference:
        hub["delta"] = {**difference, "base": _of(difference["base"], renames)}
    if pins := _mapping(hub.get("base_revisions")):
        hub["base_revisions"] = {_of(name, renames): pin for name, pin in pins.items()}
    return {**model.attributes, HUB: hub}


def _of(label: Any, renames: Mapping[str, str]) -> Any:
    """A name, or ``name@revision``, by the new name; what names another model stays."""
    name, at, revision = str(label).partition("@")
    return f"{renames[name]}{at}{revision}" if name in renames else label


def _mapping(value: Any) -> Mapping[str, Any]:
    """A part of an attribute, which clients may have changed."""
    return value if isinstance(value, dict) else {}
