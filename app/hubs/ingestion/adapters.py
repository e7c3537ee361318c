"""LoRA adapters of a hub: find them, and check that their base has the targeted tensors.

An adapter consists of differences from its base, so the base is never downloaded. Its headers are
read if it is available, to compare names and shapes.
"""

from __future__ import annotations

from dataclasses import replace

from app.hubs.clients.protocol import Hub, HubRevision
from app.hubs.ingestion.bases import LACKING, Base, base_of
from app.hubs.ingestion.checkpoint_fetcher import CheckpointFetcher, revision_label
from app.hubs.ingestion.checkpoint_files import choose
from app.hubs.ingestion.results import IngestResult
from app.hubs.service import OpenSource
from modelkin.checkpoints import Adapter
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = ["adapter_base_of", "is_adapter", "with_targets"]


def is_adapter(revision: HubRevision) -> bool:
    """Whether a revision holds an adapter, by the names of its files.

    Raises:
        InvalidCheckpoint: the revision holds no checkpoint, more than one, or an adapter without
            its configuration.
    """
    return choose(revision.files, revision_label(revision)).choice.is_adapter


def adapter_base_of(hub: Hub, revision: HubRevision, source: OpenSource) -> Base:
    """The base that an adapter's card declares, as far as the hub has it.

    The configuration may name a base, too, and counts before the source's: see
    :func:`with_targets`.

    Raises:
        InvalidParameter: the source stores weights alone.
    """
    if source.importance == "weight":
        raise InvalidParameter(
            f"{revision_label(revision)} is a LoRA adapter, which has differences and no weights, "
            f"and its source has the importance weight: set it to delta or to null, "
            f"or leave the adapter out by the source's filters",
            field="importance",
        )
    return base_of(hub, revision, None, None)


def with_targets(fetching: CheckpointFetcher, made: IngestResult, adapter: Adapter) -> IngestResult:
    """Add the name of an adapter's base, whose headers must have the adapter's targets.

    The card names the base, else the configuration, else the source. A base without the targets is
    noted; it is an error if the source requires differences.

    Raises:
        SpaceMismatch: the source requires differences, and the base lacks a target.
        HubUnavailable: the hub cannot be asked for the base now.
    """
    declared = made.revision.base_model or adapter.base_name or made.source.base_model
    base = made.base
    if not made.revision.base_model:
        base = base_of(fetching.hub, made.revision, None, declared)
    base = replace(base, name=None if declared is None else _without_revision(declared))
    revision = base.revision
    if revision is not None:
        try:
            adapter.targets_in(fetching.outline(revision, "outline"))
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


def _without_revision(name: str) -> str:
    return name.rpartition("@")[0] or name
