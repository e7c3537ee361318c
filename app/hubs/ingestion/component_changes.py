"""``ComponentChange``: what is stored of a component before a sync ends, and what shall be after.

A component comes with new supports or with the old ones, without any, with an error, or is gone.
What is renamed, moved, deleted, locked and recorded of it follows from what was stored, and from
the spaces that its supports have now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.hubs.ingestion.results import IngestResult
from app.hubs.ingestion.stored_models import Held, StoredModel
from app.hubs.ingestion.sync_results import SyncedModel, superseded_error
from app.hubs.records import ImportanceName, Place
from app.hubs.service import OpenSource
from app.infra.db.database import Writer
from app.models.catalog.repositories import models
from app.models.catalog.writer import ModelWriter
from app.models.spaces.records import SpaceRecord

__all__ = ["ComponentChange", "changes_of", "move_stored"]


@dataclass(frozen=True, slots=True)
class ComponentChange:
    """A component of a repository, or all of it, before and after a sync.

    Attributes:
        component: its name; None for a whole model.
        name: the name that it has here now.
        past: what is stored of it.
        part: what the sync has found; None where it is gone, or cannot be read.
        targets: the spaces of its supports, new or unchanged; none without supports.
        stays: whether what is stored stays, though the sync has made no support of it.
    """

    component: str | None
    name: str
    past: Sequence[Held]
    part: SyncedModel | None = None
    targets: Mapping[ImportanceName, SpaceRecord] = field(default_factory=dict)
    stays: bool = False

    @property
    def place(self) -> Place | None:
        """The place where it is stored now; None for none that is known."""
        if self.targets:
            weight, difference = self.targets.get("weight"), self.targets.get("delta")
            return Place(
                self.name,
                None if weight is None else weight.name,
                None if difference is None else difference.name,
            )
        return replace(self.past[0].place, model=self.name) if self.stays and self.past else None

    @property
    def spaces(self) -> Iterator[SpaceRecord]:
        """The spaces that hold it, before or after."""
        for held in self.past:
            yield from (stored.space for _, stored in held)
        yield from self.targets.values()


def changes_of(
    parts: Sequence[SyncedModel],
    refused: Collection[str],
    past: Mapping[str | None, Sequence[Held]],
) -> list[ComponentChange]:
    """The changes of all components that a sync has found, or that are stored.

    Args:
        parts: the model, or the components of a pipeline.
        refused: the names of components that cannot be read.
        past: what is stored, by component.

    Raises:
        Unavailable: what a part had in common with the stored model has changed meanwhile.
    """
    made = parts[0].made
    found = [_change_of(part, past.get(part.component, ())) for part in parts]
    others = [name for name in past if name not in {each.component for each in found}]
    return found + [
        ComponentChange(name, _name(made, name), past[name], stays=name in refused)
        for name in others
    ]


def _change_of(part: SyncedModel, past: Sequence[Held]) -> ComponentChange:
    component, name = part.component, part.made.name
    if part.made.refusal is not None:
        return ComponentChange(component, name, past, part, stays=True)
    if part.selection is not None:
        targets = {ready.importance: ready.placed.space for ready in part.prepared}
        return ComponentChange(component, name, past, part, targets)
    held = [one for one in past if one.is_made_like(part.made)]
    if not held:
        raise superseded_error(name)
    return ComponentChange(
        component, name, past, part, {importance: stored.space for importance, stored in held[0]}
    )


def _name(made: IngestResult, component: str | None) -> str:
    """The name here of a component of a repository, or of the repository itself."""
    return replace(made.revision, component=component).model_name


def move_stored(
    session: Writer, writer: ModelWriter, source: OpenSource, change: ComponentChange
) -> list[tuple[ImportanceName, str]]:
    """Give the stored supports of a component its present name; their spaces are locked.

    A support that belongs to another space by now, or to none, goes with the policy of the source,
    unless it stays anyway. Returns the spaces where such supports are left.
    """
    kept = {space.id for space in change.targets.values()}
    left: list[tuple[ImportanceName, str]] = []
    for importance, one in (each for held in change.past for each in held):
        is_left = one.space.id not in kept
        if is_left and source.on_delete == "remove" and not change.stays:
            writer.delete(session, one.space, one.model.name)
            continue
        _rename(session, writer, one, change.name)
        if is_left:
            left.append((importance, one.space.name))
    return left


def _rename(session: Writer, writer: ModelWriter, stored: StoredModel, name: str) -> None:
    """Give a stored model its present name; delete it if a model has that name already."""
    if stored.model.name == name:
        return
    if models.find_model(session, stored.space, name) is None:
        writer.rename(session, stored.space, stored.model.name, name)
    else:
        writer.delete(session, stored.space, stored.model.name)
