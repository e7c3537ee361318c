"""The description of a hub's model here: its tags, its base and the attribute ``hub``.

Attributes and tags that users add stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.hubs.ingestion.results import IngestResult
from app.hubs.ingestion.stored_models import HUB, address_of, hub_of
from app.models.catalog.records import ModelRecord
from modelkin._validation import MAX_TAGS, check_model_name, check_tag
from modelkin.errors import InvalidName
from modelkin.types.paging import UNCHANGED, Unchanged

__all__ = ["attributes_of", "base_model_of", "contents_of", "hub_attribute", "tags_of"]

_MAX_CONTENTS: Final = 100
"""Revisions of a hub that a model remembers."""


def hub_attribute(made: IngestResult) -> dict[str, Any]:
    """The attribute ``hub`` of a model, without the fields about its supports."""
    revision = made.revision
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
        "base_revision": _base_pin(made),
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


def _base_pin(made: IngestResult) -> str | None:
    """The revision of the base that the model, or its source, pins, as the hub resolves it."""
    name, _, pin = (made.revision.base_model or made.source.base_model or "").rpartition("@")
    if not name:
        return None
    return pin if made.base.revision is None else made.base.revision.revision


def base_model_of(made: IngestResult) -> str | Unchanged:
    """The name of the model's base; unchanged if the hub names none."""
    declared = made.revision.base_model or made.base.name
    if declared is None and made.base.revision is not None:
        declared = made.base.revision.name
    if declared is None:
        return UNCHANGED
    name = declared.rpartition("@")[0] or declared
    if made.revision.component is not None and made.base.revision is None:
        name = f"{name}/{made.revision.component}"
    elif made.base.revision is not None and made.revision.component is not None:
        name = made.base.revision.model_name
    try:
        return check_model_name(name)
    except InvalidName:
        return UNCHANGED
