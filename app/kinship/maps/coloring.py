"""The colours of a map: clusters, tags, or the values of an attribute, as a few groups.

The largest groups have a colour each, and all other groups share one. Numbers with many values
become ranges with about as many models each. Groups are remembered until the map changes, or the
clusters or values that colour it.
"""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from cachetools import LRUCache
from pydantic_core import from_json, to_json

from app.infra.db.database import Reader
from app.kinship.clustering.labels import LabelCache
from app.kinship.clustering.service import ClusteringService
from app.kinship.maps import repository
from app.kinship.maps.records import MapRecord
from app.models.catalog.repositories import completions
from app.models.spaces.records import SpaceRecord
from modelkin.core.clustering.clustering import NOISE

__all__ = ["Coloring", "Group", "MapColoring"]

_MAX_GROUPS: Final = 24
"""Groups that a reader can distinguish: eight colours, with three marks."""
_RANGES: Final = 7
_MAX_TAGS: Final = 12
_MAX_KEYS: Final = 30
_MAX_TEXT: Final = 80
_NONE, _NEWER = -1, -2
"""Codes of a model in no group, and of a model that is newer than the groups."""
_MAX_REMEMBERED: Final = 2_000_000
"""Models of all colourings that are remembered; a model takes eight bytes."""

ColoringKind = Literal["categories", "ranges"]


@dataclass(frozen=True, slots=True)
class Group:
    """Models of one colour: their number, and their common value."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Coloring:
    """The groups of some models.

    Attributes:
        kind: ``ranges`` of a number are in order; ``categories`` the largest first.
        groups: the groups with a colour.
        codes: the group of each model; -1 for no group, -2 for models newer than the clustering.
        others: the number of groups without a colour.
    """

    kind: ColoringKind
    groups: tuple[Group, ...]
    codes: list[int]
    others: int = 0


class MapColoring:
    """Finds the groups of models.

    Args:
        max_remembered: the most models, over all remembered colourings.
    """

    def __init__(
        self,
        clusterings: ClusteringService,
        labels: LabelCache,
        max_remembered: int = _MAX_REMEMBERED,
    ) -> None:
        self._clusterings = clusterings
        self._labels = labels
        self._known: LRUCache[tuple[str, str, str], Coloring] = LRUCache(
            max_remembered, getsizeof=lambda found: len(found.codes)
        )
        self._lock = threading.Lock()

    def choices(self, session: Reader, space: SpaceRecord) -> list[str]:
        """The colourings of the space: ``cluster``, ``base``, ``owner``, ``tag``, ``tag:x``, and
        ``attribute:y``.
        """
        found = ["cluster"] if self._clusterings.newest(session, space) is not None else []
        found += ["base"] * repository.has_bases(session, space)
        found += ["owner"] * bool(completions.owners_beginning(session, space, "", 1))
        tags = repository.tag_counts(session, space, _MAX_TAGS)
        found += ["tag"] * bool(tags) + [f"tag:{tag}" for tag in tags]
        keys = Counter(key for key, _ in completions.attributes_of_some(session, space))
        return found + [f"attribute:{key}" for key in sorted(keys)[:_MAX_KEYS]]

    def default(self, session: Reader, space: SpaceRecord) -> str:
        """The default colouring of the space; "" for none."""
        if self._clusterings.newest(session, space) is not None:
            return "cluster"
        if repository.has_tags(session, space):
            return "tag"
        return "base" if repository.has_bases(session, space) else ""

    def coloring(self, session: Reader, space: SpaceRecord, by: str, drawn: MapRecord) -> Coloring:
        """Group the models of a map.

        Args:
            by: one of :meth:`choices`; for anything else models have no colour.

        Raises:
            MapNotFound: the map was replaced meanwhile.
        """
        newest = self._clusterings.newest(session, space) if by == "cluster" else None
        state = str(space.version) if newest is None else newest.id
        key = (drawn.id, by, state)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        models = from_json(gzip.decompress(repository.content(session, drawn)))["models"]
        clusters = {} if newest is None else self._labels.labels(session, newest).of
        found = _color_models(session, space, by, models, clusters)
        if newest is not None:
            found = _without_newer(session, space, found, models, clusters, newest.version)
        with self._lock:
            if found.groups and len(found.codes) <= self._known.maxsize:
                self._known[key] = found
        return found


def _color_models(
    session: Reader,
    space: SpaceRecord,
    by: str,
    models: Sequence[str],
    clusters: Mapping[str, int],
) -> Coloring:
    field, _, value = by.partition(":")
    if field == "attribute":
        return _of_values(dict(repository.attribute_values(session, space, value)), models)
    if field == "cluster":
        named = {each: f"cluster {label}" for each, label in clusters.items() if label != NOISE}
        return _of_categories(named, models)
    if field == "base":
        return _of_categories(dict(repository.declared_bases(session, space)), models)
    if field == "owner":
        owners = {each: each.split("/", 1)[0] for each in models if "/" in each}
        return _of_categories(owners, models)
    if field == "tag":
        return _of_categories(_tags(session, space, value), models)
    return Coloring("categories", (), [-1] * len(models))


def _without_newer(
    session: Reader,
    space: SpaceRecord,
    found: Coloring,
    models: Sequence[str],
    clusters: Mapping[str, int],
    version: int,
) -> Coloring:
    """Give models that are newer than the clustering another code than models in no group.

    Args:
        version: the version of the space that was clustered.
    """
    if all(model in clusters for model in models):
        return found
    later = set(repository.changed_models(session, space, version))
    codes = [
        _NEWER if code == _NONE and model not in clusters and model in later else code
        for model, code in zip(models, found.codes, strict=True)
    ]
    return replace(found, codes=codes)


def _tags(session: Reader, space: SpaceRecord, only: str) -> Mapping[str, str]:
    """The tag of each model: ``only``, or the rarest of the frequent ones that it carries."""
    tags = [only] if only else repository.tag_counts(session, space, _MAX_GROUPS)
    order = {tag: place for place, tag in enumerate(tags)}
    found: dict[str, str] = {}
    for model, tag in repository.tagged_models(session, space, tags):
        if model not in found or order[tag] > order[found[model]]:
            found[model] = tag
    return found


def _of_values(values: Mapping[str, Any], models: Sequence[str]) -> Coloring:
    numbers = {
        model: value
        for model, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if len(numbers) > len(values) / 2 and len(set(numbers.values())) > _MAX_GROUPS:
        return _of_numbers(numbers, models)
    return _of_categories({model: _value_text(value) for model, value in values.items()}, models)


def _of_numbers(numbers: Mapping[str, float], models: Sequence[str]) -> Coloring:
    values = np.array([numbers.get(model, np.nan) for model in models], np.float64)
    known = values[np.isfinite(values)]
    limits = np.unique(np.quantile(known, np.linspace(0, 1, _RANGES + 1))) if known.size else known
    codes = np.clip(np.searchsorted(limits, values, "right") - 1, 0, max(0, limits.size - 2))
    codes[~np.isfinite(values)] = -1
    counts = np.bincount(codes[codes >= 0], minlength=max(0, limits.size - 1)).tolist()
    names = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(limits.tolist())]
    groups = tuple(Group(name, count) for name, count in zip(names, counts, strict=False))
    return Coloring("ranges", groups, codes.tolist())


def _of_categories(labels: Mapping[str, str], models: Sequence[str]) -> Coloring:
    found = [labels.get(model) for model in models]
    counts = Counter(label for label in found if label is not None)
    ranked = sorted(counts, key=lambda label: (-counts[label], label))
    if len(ranked) > _MAX_GROUPS:  # then a colour is not for a single model
        shown = [label for label in ranked if counts[label] > 1]
    else:
        shown = ranked
    place = {label: row for row, label in enumerate(shown[:_MAX_GROUPS])}
    groups = tuple(Group(label, counts[label]) for label in place)
    codes = [-1 if label is None else place.get(label, -1) for label in found]
    return Coloring("categories", groups, codes, len(ranked) - len(groups))


def _value_text(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value).decode()
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
