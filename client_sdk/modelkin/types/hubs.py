"""Sources, which are hubs whose models a space follows, and the events that the hubs send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.types.vocabulary import HubEventOutcome, HubImportance, HubKind, OnDelete

__all__ = ["HubEvent", "Source"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Source(Printed):
    """A hub whose models a space follows; the service never answers its secret and token.

    Attributes:
        id: opaque.
        kind: ``"huggingface"`` or ``"mlflow"``; a newer service may know more.
        space: receives the models that have its layout.
        url: the URL of the hub; None where events are only recorded.
        has_token: whether the service holds a token for the hub.
        importance: ``"weight"`` or ``"delta"`` alone; None for the weights of every model, and its
            difference from its base too where one is known.
        base_model: a model of the hub, the base of models that declare none.
        exclude: patterns of the tensors that supports leave out.
        filters: ``repos``, ``owners`` and ``tags`` of the models that are followed.
        on_delete: whether a model that is deleted on the hub is kept or removed here.
        poll_seconds: between two polls; None for never.
        fingerprints: whether each model gets a fingerprint.
        backfill_per_hour: how many stored models an hour are read again for their fingerprints;
            None for no limit.
        fingerprint_counts: models that were ``read``, that can have none (``without``), that are
            ``waiting``, and of which no file is read (``unread``).
        hook: the path on the service to which the hub sends its events.
        last_delivery_at: when the last valid event came.
        last_refusal: ``{"at", "detail"}`` of the last event with an invalid signature.
        last_error: ``{"at", "code", "detail"}`` of the last poll or sync that failed.
        last_poll: counts of the last poll: ``models``, ``new``, ``changed``, ``gone``; and in
            ``absent_owners`` those of the filters of whom the hub listed no model.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("id", "kind", "space", "url", "last_poll_at", "last_error"),
    )
    id: str
    kind: HubKind
    space: str
    url: str | None = None
    has_token: bool
    importance: HubImportance | None = None
    base_model: str | None = None
    exclude: tuple[str, ...] = ()
    filters: Mapping[str, Any] = field(hash=False)
    on_delete: OnDelete
    poll_seconds: int | None = None
    fingerprints: bool = False
    backfill_per_hour: int | None = None
    fingerprint_counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    hook: str
    created_at: Moment
    updated_at: Moment
    last_delivery_at: Moment | None = None
    last_refusal: Mapping[str, Any] | None = field(default=None, hash=False)
    last_error: Mapping[str, Any] | None = field(default=None, hash=False)
    last_poll: Mapping[str, Any] | None = field(default=None, hash=False)
    last_poll_at: Moment | None = None
    next_poll_at: Moment | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HubEvent(Printed):
    """An incoming webhook of a hub, and its outcome.

    Attributes:
        delivery_id: the hub's id of it, or a digest of its body.
        event: the type of the event in the hub's words, such as ``"repo.content.update"``.
        model: the model it concerns, by its name on the hub.
        revision: the model's revision according to the hub.
        outcome: whether a sync of the model was enqueued.
        reason: why no sync was enqueued; None if one was.
        job: the id of the job that syncs the model.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("received_at", "event", "model", "outcome", "reason", "job"),
    )
    delivery_id: str
    event: str
    model: str | None = None
    revision: str | None = None
    outcome: HubEventOutcome
    reason: str | None = None
    job: str | None = None
    received_at: Moment
