"""The answers of an MLflow registry, and what they say of models, versions and tags."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from app.hubs.clients.answers import items_of, moment_of, part_of, shown, text_of
from app.hubs.clients.protocol import HubModel
from modelkin._validation import MAX_BASE_MODELS
from modelkin.core.foreign_json import NULL, Raw, decode_json

__all__ = [
    "Answer",
    "Entry",
    "Model",
    "Run",
    "RunInfo",
    "Version",
    "attributes_of",
    "bases_in",
    "decimal_of",
    "is_ready",
    "newest",
    "number_of",
    "tag_values",
    "tags_of",
    "to_model",
]

_MAX_TAGS: Final = 1000
"""Tags and aliases that are read of a model or a version."""
_OWN_TAGS: Final = "mlflow."
"""The prefix of the tags that MLflow sets itself."""


class Answer(Struct):
    """An answer of the registry, whichever was asked for."""

    registered_model: Raw = NULL
    registered_models: Raw = NULL
    next_page_token: Raw = NULL
    model_version: Raw = NULL
    run: Raw = NULL
    artifact_uri: Raw = NULL
    root_uri: Raw = NULL
    files: Raw = NULL


class Model(Struct):
    """A registered model."""

    name: Raw = NULL
    tags: Raw = NULL
    aliases: Raw = NULL
    latest_versions: Raw = NULL


class Version(Struct):
    """A version of a registered model."""

    version: Raw = NULL
    status: Raw = NULL
    tags: Raw = NULL
    run_id: Raw = NULL
    source: Raw = NULL
    creation_timestamp: Raw = NULL


class Tag(Struct):
    """A tag of a model or a version."""

    key: Raw = NULL
    value: Raw = NULL


class Alias(Struct):
    """An alias of a version."""

    alias: Raw = NULL
    version: Raw = NULL


class Run(Struct):
    """A run."""

    info: Raw = NULL


class RunInfo(Struct):
    """The facts of a run."""

    artifact_uri: Raw = NULL


class Entry(Struct):
    """An entry of a folder of artifacts."""

    path: Raw = NULL
    is_dir: Raw = NULL
    file_size: Raw = NULL


def to_model(name: str, model: Model) -> HubModel:
    """The line of a registered model, which may have no version that is ready."""
    version = newest(model)
    number, tags = number_of(version), tags_of(model, version or Version())
    changed = None if version is None else moment_of(version.creation_timestamp)
    return HubModel(
        name, number, tags, unreleased=number is None, mutable_tags=True, changed_at=changed
    )


def newest(model: Model) -> Version | None:
    """The ready version with the highest number among the newest of each stage."""
    versions = (part_of(item, Version) for item in items_of(model.latest_versions))
    ready = {
        int(number): version
        for version in versions
        if version is not None and is_ready(version) and (number := number_of(version)) is not None
    }
    return ready[max(ready)] if ready else None


def is_ready(version: Version) -> bool:
    return version.status == NULL or text_of(version.status) == "READY"


def number_of(version: Version | None) -> str | None:
    """The number of a version, which is a number or a text of one."""
    number = None if version is None else decimal_of(version.version)
    return None if number is None else str(number)


def decimal_of(part: Raw) -> int | None:
    """A number below 10^19; protobuf writes 64-bit numbers as texts in JSON."""
    text = str(part_of(part, int) if part_of(part, str) is None else part_of(part, str))
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def bases_in(text: str | None) -> tuple[str, ...]:
    """The bases that a tag names: one, or several as a list of JSON."""
    listed = [] if text is None else [text]
    if text is not None and text.lstrip().startswith("["):
        with suppress(ValueError):
            listed = decode_json(text.encode(), list[str])
    names = (shown(each.strip(), 200) for each in listed)
    return tuple(islice(dict.fromkeys(filter(None, names)), MAX_BASE_MODELS))


def tag_values(tags: Raw, max_length: int = 200) -> dict[str, str]:
    found = (part_of(item, Tag) or Tag() for item in islice(items_of(tags), _MAX_TAGS))
    pairs = [(text_of(tag.key, 200), text_of(tag.value, max_length)) for tag in found]
    return {key: value for key, value in pairs if key is not None and value is not None}


def tags_of(model: Model, version: Version) -> tuple[str, ...]:
    """``key:value`` of model and version, where the version's win; and its aliases."""
    merged = tag_values(model.tags) | tag_values(version.tags)
    tags = [f"{key}:{value}" for key, value in merged.items() if not key.startswith(_OWN_TAGS)]
    number = number_of(version)
    aliases = [part_of(item, Alias) for item in islice(items_of(model.aliases), _MAX_TAGS)]
    here = [
        text_of(a.alias, 100) for a in aliases if a is not None and text_of(a.version) == number
    ]
    return (*tags, *(f"alias:{alias}" for alias in here if alias is not None))


def attributes_of(version: Version) -> dict[str, Any]:
    run = text_of(version.run_id, 200)
    return {} if run is None else {"run": run}
