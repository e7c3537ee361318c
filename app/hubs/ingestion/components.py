"""The components of a diffusers pipeline, each of which is a model here, from one sync.

A component's name is that of its repository and of its folder, ``org/name/unet``. Its base is the
same component of the repository's base.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Final

from app.hubs.clients.protocol import Hub, HubFile, HubRevision
from app.hubs.ingestion.bases import Base
from app.hubs.ingestion.files.checkpoint_fetcher import revision_label
from app.hubs.ingestion.files.checkpoint_files import choose
from app.hubs.ingestion.files.downloads import Downloads
from modelkin.checkpoints.candidates import is_weights
from modelkin.checkpoints.indexes import read_pipeline
from modelkin.checkpoints.repository import components, unread_components
from modelkin.errors import InvalidCheckpoint, ModelkinError

__all__ = ["Parts", "base_of_part", "component_of", "parts_of"]

_MAX_COMPONENTS: Final = 64
"""The most components of a pipeline; the largest of diffusers have a dozen."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The models of a repository.

    Attributes:
        revisions: the revision itself; of a pipeline one for each component, the largest first.
        notes: remarks for people on a pipeline.
        refused: the errors of components whose format is not read, by their names.
    """

    revisions: tuple[HubRevision, ...]
    notes: tuple[str, ...] = ()
    refused: Mapping[str, ModelkinError] = field(default_factory=dict)


def parts_of(hub: Hub, revision: HubRevision, downloads: Downloads) -> Parts:
    """The models of a repository: one, or the components of a pipeline, which its list names.

    Raises:
        InvalidCheckpoint: there is no checkpoint, the choice is ambiguous, or a list of components
            is none.
        HubNotFound, HubForbidden, HubUnavailable, HubProtocolError: the hub refuses the list.
    """
    where = revision_label(revision)
    chosen = choose(revision.files, where)
    if chosen.choice.kind != "pipeline":
        return Parts((revision,))
    with downloads.directory() as directory:
        path = directory.path / PurePosixPath(chosen.choice.first).name
        hub.download(revision, chosen.first, path)
        try:
            listed = read_pipeline(path)
        except InvalidCheckpoint as error:
            raise InvalidCheckpoint(f"{where}: {error}") from None
    found = components(chosen.choice, listed, chosen.revision, where)
    if len(found) > _MAX_COMPONENTS:
        raise InvalidCheckpoint(
            f"{where} is a pipeline of {len(found)} components, at most {_MAX_COMPONENTS} are read"
        )
    parent = PurePosixPath(chosen.choice.first).parent
    parts = [component_of(revision, parent, name) for name in found]
    unread = unread_components(chosen.choice, listed, chosen.revision)
    refused = {name: InvalidCheckpoint(f"{where}: {why}") for name, why in unread.items()}
    parts.sort(key=_size, reverse=True)
    notes = (*chosen.choice.notes, *_unlisted(parent, listed, chosen.revision))
    return Parts(tuple(parts), notes, refused)


def base_of_part(base: Base, part: HubRevision) -> Base:
    """The base of a model, or of a component, which is the base's component of that name.

    Raises:
        InvalidCheckpoint: a base is required, and has no such component.
    """
    if base.revision is None:
        if base.lacking is None or part.component is None:
            return base
        return replace(base, lacking=f"{base.lacking}/{part.component}")
    where = revision_label(base.revision)
    chosen = choose(base.revision.files, where)
    is_pipeline = chosen.choice.kind == "pipeline"
    try:
        if is_pipeline != (part.component is not None):
            raise InvalidCheckpoint(
                f"{where} is {'a pipeline' if is_pipeline else 'one model'}, and "
                f"{revision_label(part)} is {'a component' if part.component else 'one model'}"
            )
        if part.component is None:
            return base
        parent = PurePosixPath(chosen.choice.first).parent
        revision = component_of(base.revision, parent, part.component)
        choose(revision.files, revision_label(revision))
    except InvalidCheckpoint as error:
        return base.without(error, base.revision.name, part)
    return replace(base, revision=revision)


def component_of(revision: HubRevision, parent: PurePosixPath, name: str) -> HubRevision:
    """One component: the files of its folder, and nothing else."""
    folder = f"{parent / name}/"
    files = tuple(file for file in revision.files if file.path.startswith(folder))
    return replace(revision, files=files, component=name)


def _unlisted(
    parent: PurePosixPath, listed: Collection[str], files: Iterable[str]
) -> tuple[str, ...]:
    """The note on folders with weights that a pipeline's list does not name; none without them."""
    folders = {path.parent for path in map(PurePosixPath, files) if is_weights(path.name)}
    aside = sorted(
        f"{f.name}/" for f in folders if f.parent == parent != f and f.name not in listed
    )
    if not aside:
        return ()
    return (f"its list names no class for these folders, which are left aside: {', '.join(aside)}",)


def _size(part: HubRevision) -> int:
    """The bytes of a component's weights, as far as the hub declares them."""
    return _bytes_of(choose(part.files, revision_label(part)).weights)


def _bytes_of(files: Sequence[HubFile]) -> int:
    return sum(file.size or 0 for file in files)
