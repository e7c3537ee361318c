"""The description of a hub's model here: its tags, its base and the attribute ``hub``.

Attributes and tags that users add stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.hubs.ingestion.base_names import NamedBase
from app.hubs.ingestion.results import IngestResult
from app.hubs.ingestion.stored_models import BASE_NAMES, HUB, address_of, hub_of
from app.models.catalog.records import DeclaredBases, ModelRecord
from app.models.catalog.writer import BaseChange
from modelkin._validation import MAX_TAGS, check_model_name, check_tag
from modelkin.errors import InvalidName
from modelkin.types.paging import UNCHANGED, Unchanged

__all__ = ["attributes_of", "bases_of", "contents_of", "hub_attribute", "tags_of"]

_MAX_CONTENTS: Final = 100
"""Revisions of a hub that a model remembers."""


def hub_attribute(made: IngestResult) -> dict[str, Any]:
    """The attribute ``hub`` of a model, without the fields about its supports."""
    revision, bases = made.revision, made.base.named
    return {
        "kind": made.source.kind,
        "url": address_of(made.source),
        "source": made.source.id,
        "model": revision.name,
        **({} if revision.component is None else {"component": revision.component}),
        "revision": revision.revision,
        "private": revision.private,
        "tags": list(_valid(revision.tags)),
        "job": made.job,
        "base_revision": bases[0].pin if len(bases) == 1 else None,
        **_of_several(made),
        BASE_NAMES: {each.written: each.name for each in bases if each.written != each.name},
        **revision.attributes,
    }


def contents_of(current: ModelRecord | None, made: IngestResult, number: int) -> dict[str, int]:
    """Map the newest revisions on the hub to the revisions here that have their contents.

    Args:
        current: the stored model.
        made: the findings about its revision on the hub.
        number: the number of the revision here that has this content.
    """
    recorded = {} if current is None else hub_of(current).get("contents")
    known = dict(recorded) if isinstance(recorded, dict) else {}
    known.pop(made.revision.revision, None)
    known[made.revision.revision] = number
    return dict(list(known.items())[-_MAX_CONTENTS:])


def attributes_of(current: ModelRecord | None, hub: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a model with a new attribute ``hub``."""
    return {**({} if current is None else current.attributes), HUB: dict(hub)}


def tags_of(current: ModelRecord | None, made: IngestResult) -> tuple[str, ...]:
    """The tags that users added, then those of the hub, as many as a model may have."""
    if current is None:
        own: list[str] = []
    else:
        recorded = hub_of(current).get("tags")
        before = recorded if isinstance(recorded, list) else []
        own = [tag for tag in current.tags if tag not in before]
    merged = dict.fromkeys([*own, *_valid(made.revision.tags)])
    return tuple(sorted(list(merged)[:MAX_TAGS]))


def _valid(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags of a hub that are valid here."""
    found = []
    for tag in tags:
        try:
            found.append(check_tag(tag))
        except InvalidName:
            continue
    return tuple(dict.fromkeys(found))[:MAX_TAGS]


def _of_several(made: IngestResult) -> dict[str, Any]:
    """The pinned revisions of several bases, by their names."""
    bases = made.base.named
    pins = {_name(each, made): each.pin for each in bases if each.pin is not None}
    return {"base_revisions": pins} if len(bases) > 1 and pins else {}


def _name(base: NamedBase, made: IngestResult) -> str:
    """The name of a base here: that of its repository, and of the model's component below it."""
    component = made.revision.component
    return base.name if component is None else f"{base.name}/{component}"


def bases_of(made: IngestResult) -> BaseChange | Unchanged:
    """The bases of a model, as its hub calls them; unchanged if the hub names none.

    The base of its source is one only where it gives the difference.
    """
    stands_in = not made.revision.base_models and not made.adapter
    if stands_in and made.base.revision is None:
        return UNCHANGED
    names = []
    for each in made.base.named:
        try:
            names.append(check_model_name(_name(each, made)))
        except InvalidName:
            continue
    if not names:
        return UNCHANGED
    declared = DeclaredBases(tuple(names), made.revision.base_relation)
    return lambda _: declared
