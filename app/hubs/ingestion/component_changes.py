"""``ComponentChange``: what is stored of a component before a sync ends, and what shall be after.

A component comes with new supports or with the old ones, without any, with an error, or is gone.
What is renamed, moved, deleted, locked and recorded of it follows from what was stored, and from
the spaces that its supports have now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.hubs.ingestion.results import IngestResult
from app.hubs.ingestion.stored_models import Held
from app.hubs.ingestion.sync_results import SyncedModel, superseded_error
from app.hubs.records import ImportanceName, Place
from app.models.spaces.records import SpaceRecord

__all__ = ["ComponentChange", "changes_of"]


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
