"""Adapters of a hub: find them, and check that their base has the targeted tensors.

An adapter consists of differences from its base, so the base is never downloaded. Its headers are
read if it is available, to compare names and shapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from app.hubs.clients.protocol import Hub, HubRevision
from app.hubs.ingestion.bases import LACKING, Base, BaseFinder
from app.hubs.ingestion.components import component_of
from app.hubs.ingestion.files.checkpoint_fetcher import CheckpointFetcher, names_in, revision_label
from app.hubs.ingestion.files.checkpoint_files import choose
from app.hubs.ingestion.results import IngestResult, adapter_recipe, weights_recipe
from app.hubs.ingestion.stored_models import Held
from app.hubs.service import OpenSource
from modelkin.checkpoints import Adapter, Checkpoint
from modelkin.checkpoints.adapters import ADAPTER_FILES
from modelkin.checkpoints.candidates import SUFFIX, is_weights
from modelkin.core.adapters import component_of as pipeline_component
from modelkin.core.adapters import has_factors
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint, InvalidParameter, SpaceMismatch

__all__ = ["WithoutWeights", "adapter_base_of", "is_adapter", "with_targets"]

_WEIGHTS: Final = ("model.safetensors", "diffusion_pytorch_model.safetensors")
"""Files that hold weights, so that their headers are not requested first."""


class WithoutWeights(InvalidParameter):
    """An adapter at a source of weights alone, which leaves it out."""


def is_adapter(hub: Hub, revision: HubRevision, source: OpenSource, known: Iterable[Held]) -> bool:
    """Whether a revision holds an adapter: by the name of its file, else by the file's header.

    A file called ``model.safetensors`` counts as weights here: what it holds is known once it is
    opened. Of a revision that is stored, what it is stored as says it.

    Args:
        known: what is stored of the model.

    Raises:
        InvalidCheckpoint: the revision holds no checkpoint, more than one, or an adapter without
            its configuration.
        HubNotFound, HubForbidden, HubUnavailable, HubProtocolError: the hub refuses the header.
    """
    chosen = choose(revision.files, revision_label(revision))
    name = PurePosixPath(chosen.first.path).name
    if name in ADAPTER_FILES:
        return True
    if chosen.choice.kind != "file" or name in _WEIGHTS or not name.endswith(SUFFIX):
        name = ""
    for held in known:
        if held.difference is not None and held.difference.has(adapter_recipe(source, revision)):
            return True
        if held.weight is not None and held.weight.has(weights_recipe(source, revision)):
            return False
    return name != "" and has_factors(names_in(hub, revision, chosen.first))


def adapter_base_of(finder: BaseFinder, revision: HubRevision) -> Base:
    """The base that an adapter's card declares, as far as the hub has it.

    The configuration may name a base, too, and counts before the source's: see
    :func:`with_targets`.

    Raises:
        WithoutWeights: the source stores weights alone.
    """
    if finder.source.importance == "weight":
        raise WithoutWeights(
            f"{revision_label(revision)} is an adapter, which has differences and no weights, "
            f"and its source has the importance weight: set it to null or to delta to have it, too",
            field="importance",
        )
    return finder.base_of(revision, texts=revision.base_models, optional=True)


def with_targets(
    finder: BaseFinder, fetching: CheckpointFetcher, made: IngestResult, adapter: Adapter
) -> IngestResult:
    """Add the name of an adapter's base, whose headers must have the adapter's targets.

    The card names the base, else the configuration, else the source. A base without the targets is
    noted; it is an error if the source requires differences.

    Args:
        made: the findings; those of weights become those of an adapter, since the file says so.

    Raises:
        InvalidParameter: the source stores weights alone.
        SpaceMismatch: the source requires differences, and the base lacks a target.
        HubUnavailable: the hub cannot be asked for the base now.
    """
    if not made.adapter:
        made = replace(made, adapter=True, base=adapter_base_of(finder, made.revision))
    base, named = made.base, adapter.base_name or made.source.base_model
    if not made.revision.base_models and named is not None:
        base = finder.base_of(made.revision, texts=(named,), optional=True)
    revision = base.revision
    if revision is not None:
        try:
            adapter.targets_in(_outline(fetching, revision, adapter))
        except SpaceMismatch as error:
            reason = f"the base {revision_label(revision)} does not fit: {error}"
            if made.source.importance == "delta":
                raise SpaceMismatch(reason) from None
            base = replace(base, reason=reason)
        except LACKING as error:
            base = replace(
                base, reason=f"base {revision_label(revision)} is not available ({error})"
            )
    return replace(made, base=base)


def _outline(fetching: CheckpointFetcher, revision: HubRevision, adapter: Adapter) -> Checkpoint:
    """The base from its headers; of a pipeline the components that an adapter changes.

    Raises:
        InvalidCheckpoint: a pipeline has no such component, or the base is damaged.
        HubNotFound, HubForbidden, HubUnavailable, HubProtocolError: the hub refuses a header.
    """
    label = revision_label(revision)
    choice = choose(revision.files, label).choice
    if choice.kind != "pipeline":
        return fetching.outline(revision, "outline")
    parent = PurePosixPath(choice.first).parent
    paths = [PurePosixPath(file.path) for file in revision.files]
    inside = [path for path in paths if path.parent.parent == parent != path.parent]
    held = sorted({path.parent.name for path in inside if is_weights(path.name)})

    def outline(part: str) -> Checkpoint:
        return fetching.outline(component_of(revision, parent, part), f"outline-{part}")

    changed = {part for tensor in adapter.tensors if (part := pipeline_component(tensor.name))}
    if not changed:
        return _that_fits(adapter, map(outline, held), label)
    for part in sorted(changed.difference(held)):
        raise InvalidCheckpoint(f"{label} has no {quote(part)}, which the adapter changes")
    outlines = {part: outline(part) for part in sorted(changed)}
    tensors = tuple(
        replace(tensor, name=f"{part}.{tensor.name}")
        for part, found in outlines.items()
        for tensor in found.tensors
    )
    return replace(outlines[min(changed)], tensors=tensors)


def _that_fits(adapter: Adapter, components: Iterable[Checkpoint], label: str) -> Checkpoint:
    """The first component that has all targets of an adapter, whose names tell none."""
    for component in components:
        with suppress(SpaceMismatch):
            adapter.targets_in(component)
            return component
    raise InvalidCheckpoint(f"{label} is a pipeline, and no component of it has all targets")
