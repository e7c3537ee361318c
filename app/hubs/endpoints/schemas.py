"""The JSON of sources. Requests are validated strictly, and answers contain no secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from app.hubs.filters import MAX_ENTRIES
from app.hubs.incoming.service import Receipt
from app.hubs.kinds import HubKindName
from app.hubs.records import (
    FingerprintCounts,
    HubEventRecord,
    ImportanceName,
    OnDelete,
    Outcome,
    SourceRecord,
)
from app.hubs.service import DEFAULT_BACKFILL_PER_HOUR, DEFAULT_POLL_S, SourceIn
from app.infra.http.fields import CreatedAt, NextCursor, UpdatedAt
from app.infra.http.schemas import RequestModel
from app.models.spaces.stored_layouts import MAX_TENSOR_NAME_LENGTH
from modelkin._validation import check_model_name, check_space_name
from modelkin.errors import InvalidParameter

__all__ = ["HubEventPage", "ReceiptOut", "SourceChanges", "SourceNew", "SourceOut", "SourcePage"]

MAX_SECRET_BYTES = 16 << 10
MIN_POLL_S = 10
MAX_POLL_S = 30 * 86400
MAX_PER_HOUR = 100_000

_EXAMPLE: dict[str, Any] = {
    "kind": "huggingface",
    "space": "llama-8b",
    "url": "https://huggingface.co",
    "secret": "what the webhook is set to send",
    "filters": {"owners": ["org"]},
}


def _check_secret(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not 0 < len(text.encode()) <= MAX_SECRET_BYTES:
        raise ValueError(f"must be a text of 1 to {MAX_SECRET_BYTES} bytes")
    return value


Secret = Annotated[SecretStr, AfterValidator(_check_secret)]
Url = Annotated[str, Field(min_length=1, max_length=2000)]
Patterns = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_TENSOR_NAME_LENGTH)]],
    Field(max_length=MAX_ENTRIES),
]
PerHour = Annotated[int, Field(ge=1, le=MAX_PER_HOUR)]
PollSeconds = Annotated[int, Field(ge=MIN_POLL_S, le=MAX_POLL_S)]


class FiltersIO(RequestModel):
    repos: Annotated[list[str], Field(max_length=MAX_ENTRIES)] | None = Field(
        None, description="names on the hub, with `*` for any text; one of them must match"
    )
    owners: Annotated[list[str], Field(max_length=MAX_ENTRIES)] | None = Field(
        None,
        description="of Hugging Face: users and organisations; one of them must own the model",
    )
    tags: Annotated[list[str], Field(max_length=MAX_ENTRIES)] | None = Field(
        None, description="the model must have all of them; `key:value` for MLflow"
    )


class SourceNew(RequestModel):
    """The fields of a new source."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    kind: HubKindName = Field(description="which kind of hub it is")
    space: str = Field(description="the space of its models, if they have the space's layout")
    secret: Secret = Field(description="verifies the events of the hub; never shown")
    url: Url | None = Field(
        None, description="of the hub or registry; without it hub events are only recorded"
    )
    token: Secret | None = Field(None, description="the access token for the hub; never shown")
    importance: ImportanceName | None = Field(
        None,
        description="`weight` stores the weights of a model alone, `delta` its difference from its "
        "base alone, in `{space}-{base}-delta`; if left out, the weights of every model, and "
        "its difference too where a base is known",
    )
    base_model: str | None = Field(
        None, description="the base of models that declare none, by its name on the hub"
    )
    exclude: Patterns | None = Field(
        None,
        description="patterns of tensor names that supports leave out, such as `*.running_*`; the "
        "spaces that the source makes have them, too",
    )
    filters: FiltersIO | None = Field(None, description="the models to follow; null for all")
    on_delete: OnDelete = Field(
        "keep", description="whether models deleted on the hub are kept or removed here"
    )
    poll_seconds: PollSeconds | None = Field(
        DEFAULT_POLL_S,
        description="seconds between two comparisons of the hub's listing, for changes without an "
        "event; null for never, also used where the hub cannot be listed",
    )

    fingerprints: bool = Field(
        True,
        description="whether each model gets a fingerprint, by which the models are found that its "
        "tensors come from; models that have none yet are read again, the last changed first",
    )
    backfill_per_hour: PerHour | None = Field(
        DEFAULT_BACKFILL_PER_HOUR,
        description="how many stored models an hour are read again for their fingerprints; null "
        "for as many as the workers can",
    )

    def to_source(self) -> SourceIn:
        """The fields for the service."""
        return SourceIn(
            kind=self.kind,
            space=check_space_name(self.space),
            secret=self.secret.get_secret_value(),
            url=self.url,
            token=None if self.token is None else self.token.get_secret_value(),
            importance=self.importance,
            base_model=_base_model(self.base_model),
            filters={} if self.filters is None else self.filters.model_dump(exclude_none=True),
            on_delete=self.on_delete,
            poll_seconds=self.poll_seconds,
            polled="poll_seconds" in self.model_fields_set and self.poll_seconds is not None,
            exclude=self.exclude or (),
            fingerprints=self.fingerprints,
            backfill_per_hour=self.backfill_per_hour,
        )


class SourceChanges(RequestModel):
    """The fields to change; an absent field stays as it is, and `null` clears one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"secret": "another one"}]})

    space: str | None = Field(None, description="the space of its models")
    secret: Secret | None = Field(
        None, description="verifies the events of the hub from now on; never shown"
    )
    url: Url | None = Field(None, description="of the hub or registry; null to record events alone")
    token: Secret | None = Field(
        None, description="the access token for the hub, never shown; null for none"
    )
    importance: ImportanceName | None = Field(
        None, description="`weight` or `delta` alone; null for both, as far as bases are known"
    )
    base_model: str | None = Field(
        None, description="the base of models that declare none; null for none"
    )
    exclude: Patterns | None = Field(
        None, description="patterns of tensor names that supports leave out; null for none"
    )
    filters: FiltersIO | None = Field(None, description="the models to follow; null for all")
    on_delete: OnDelete | None = Field(
        None, description="whether models deleted on the hub are kept or removed here"
    )
    poll_seconds: PollSeconds | None = Field(
        None, description="seconds between two comparisons of the hub's listing; null for never"
    )
    fingerprints: bool | None = Field(None, description="whether each model gets a fingerprint")
    backfill_per_hour: PerHour | None = Field(
        None, description="how many stored models an hour are read again; null for no limit"
    )

    def to_changes(self) -> dict[str, Any]:
        """The fields that were sent, for the service."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        for name in ("space", "secret", "on_delete", "fingerprints"):
            if name in given and given[name] is None:
                raise InvalidParameter(f"{name}: every source has one", field=name)
        if "space" in given:
            given["space"] = check_space_name(given["space"])
        if "base_model" in given:
            given["base_model"] = _base_model(given["base_model"])
        if "filters" in given:
            filters = given["filters"]
            given["filters"] = {} if filters is None else filters.model_dump(exclude_none=True)
        for name in ("secret", "token"):
            if given.get(name) is not None:
                given[name] = given[name].get_secret_value()
        return given


class RefusalOut(BaseModel):
    at: datetime = Field(description="when it came, in UTC")
    detail: str = Field(description="why it was refused, for people")


class SourceErrorOut(BaseModel):
    at: datetime = Field(description="when it happened, in UTC")
    code: str = Field(description="stable, for programs")
    detail: str = Field(description="what failed, for people")


class FingerprintCountsOut(BaseModel):
    """How far the fingerprints of a hub's models are."""

    model_config = ConfigDict(from_attributes=True)

    read: int = Field(description="models that have a fingerprint")
    without: int = Field(description="models that can have none, such as adapters")
    waiting: int = Field(description="models that are to be read, most of them again")
    unread: int = Field(description="models without a file that is read, such as pickles alone")


class SourceOut(BaseModel):
    """A source, and its last events, errors and poll."""

    model_config = ConfigDict(from_attributes=True)

    id: str = Field(description="made by the service, for paths")
    kind: HubKindName = Field(description="which kind of hub it is")
    space: str = Field(description="the space of its models, if they have its layout")
    url: str | None = Field(description="of the hub; null where its events are only recorded")
    has_token: bool = Field(description="whether an access token for the hub is stored")
    importance: ImportanceName | None = Field(
        description="`weight` or `delta` alone; null for both, as far as bases are known"
    )
    base_model: str | None = Field(
        description="the base of models that declare none; null without one"
    )
    exclude: list[str] = Field(description="patterns of tensor names that supports leave out")
    filters: dict[str, list[str]] = Field(
        description="`repos`, `owners` and `tags` to follow; empty for all models"
    )
    on_delete: OnDelete = Field(
        description="whether models deleted on the hub are kept or removed here"
    )
    poll_seconds: int | None = Field(
        description="seconds between two comparisons of the hub's listing; null for never"
    )
    hook: str = Field(description="the path on this service that the hub sends its events to")
    created_at: CreatedAt
    updated_at: UpdatedAt
    last_delivery_at: datetime | None = Field(
        description="when the last valid event came; null before the first"
    )
    last_refusal: RefusalOut | None = Field(
        description="the last event with a wrong secret; at most one is recorded in 30 s"
    )
    last_error: SourceErrorOut | None = Field(description="the last failed poll or ingestion")
    last_poll: dict[str, Any] | None = Field(
        description="counts of what the last poll found, with `absent_owners` where the hub listed "
        "no model of some owners in the filters; null before the first"
    )
    last_poll_at: datetime | None = Field(
        description="when the last poll ended; null before the first"
    )
    next_poll_at: datetime | None = Field(description="when the next poll is due; null for never")
    fingerprints: bool = Field(description="whether each model gets a fingerprint")
    backfill_per_hour: int | None = Field(
        description="how many stored models an hour are read again for their fingerprints"
    )
    fingerprint_counts: FingerprintCountsOut = Field(description="how far the fingerprints are")

    @classmethod
    def of(cls, source: SourceRecord, counts: FingerprintCounts) -> SourceOut:
        made = {"exclude", "has_token", "hook", "last_delivery_at", "fingerprint_counts"}
        shown = {name: getattr(source, name) for name in cls.model_fields if name not in made}
        return cls(
            hook=f"/v1/hooks/{source.id}",
            has_token=source.token is not None,
            exclude=list(source.exclude or ()),
            last_delivery_at=source.last_event_at,
            fingerprint_counts=FingerprintCountsOut.model_validate(counts),
            **shown,
        )


class SourcePage(BaseModel):
    items: list[SourceOut] = Field(description="the newest first")
    next_cursor: NextCursor


class HubEventOut(BaseModel):
    """A hub event with a valid secret or signature."""

    model_config = ConfigDict(from_attributes=True)

    delivery_id: str = Field(
        validation_alias="event_id",
        description="the hub's id of the event, or a digest if the hub sent none",
    )
    event: str = Field(description="in the hub's words, `repo.content.update`")
    model: str | None = Field(description="its name on the hub; null where the event named none")
    revision: str | None = Field(description="the revision that it named; ingestion asks the hub")
    outcome: Outcome = Field(description="`enqueued` as a job, `ignored`, or only `recorded`")
    reason: str | None = Field(description="why the model is not synchronized")
    job: str | None = Field(description="the id of the job that synchronizes the model")
    received_at: datetime = Field(description="when it came, in UTC")

    @classmethod
    def of(cls, event: HubEventRecord) -> HubEventOut:
        return cls.model_validate(event)


class HubEventPage(BaseModel):
    items: list[HubEventOut] = Field(description="the newest first")
    next_cursor: NextCursor


class ReceiptOut(BaseModel):
    """The outcome of a hub event."""

    delivery_id: str = Field(
        description="the hub's id of the event, or a digest if the hub sent none"
    )
    outcome: Outcome = Field(description="`enqueued` as a job, `ignored`, or only `recorded`")
    reason: str | None = Field(description="why the model is not synchronized; null where it is")
    job: str | None = Field(
        description="the id of the job that synchronizes the model; null without one"
    )
    duplicate: bool = Field(description="the same event came before")

    @classmethod
    def of(cls, receipt: Receipt) -> ReceiptOut:
        event = receipt.event
        return cls(
            delivery_id=event.event_id,
            outcome=event.outcome,
            reason=event.reason,
            job=event.job,
            duplicate=receipt.duplicate,
        )


def _base_model(name: str | None) -> str | None:
    return None if name is None else check_model_name(name, field="base_model")
