"""The JSON of sources: what is taken, strictly, and what is answered. Secrets only come in."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from app.hubs.filters import MAX_ENTRIES
from app.hubs.incoming.service import Receipt
from app.hubs.records import (
    HubEventRecord,
    HubKind,
    Importance,
    OnDelete,
    Outcome,
    SourceRecord,
)
from app.hubs.service import DEFAULT_POLL_S, SourceIn
from app.infra.http.schemas import RequestModel
from modelkin._validation import check_model_name, check_space_name
from modelkin.errors import InvalidParameter

__all__ = ["HubEventPage", "ReceiptOut", "SourceChanges", "SourceNew", "SourceOut", "SourcePage"]

MAX_SECRET = 16 << 10
MIN_POLL = 10
MAX_POLL = 30 * 86400

_EXAMPLE: dict[str, Any] = {
    "kind": "huggingface",
    "space": "llama-8b",
    "url": "https://huggingface.co",
    "secret": "what the webhook is set to send",
    "filters": {"owners": ["org"]},
}


def _said(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not 0 < len(text.encode()) <= MAX_SECRET:
        raise ValueError(f"a text of 1 to {MAX_SECRET} bytes is wanted")
    return value


Secret = Annotated[SecretStr, AfterValidator(_said)]
Url = Annotated[str, Field(min_length=1, max_length=2000)]
PollSeconds = Annotated[int, Field(ge=MIN_POLL, le=MAX_POLL)]


class FiltersIO(RequestModel):
    repos: Annotated[list[str], Field(max_length=MAX_ENTRIES)] | None = Field(
        None, description="names on the hub, `*` for any text: one of them fits"
    )
    owners: Annotated[list[str], Field(max_length=MAX_ENTRIES)] | None = Field(
        None, description="of Hugging Face: users and organisations; one of them owns the model"
    )
    tags: Annotated[list[str], Field(max_length=MAX_ENTRIES)] | None = Field(
        None, description="every one of them; `key:value` of MLflow"
    )


class SourceNew(RequestModel):
    """A hub to be followed."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    kind: HubKind
    space: str = Field(description="where its models go, as far as they have the space's layout")
    secret: Secret = Field(description="that deliveries are vouched for with; never shown")
    url: Url | None = Field(
        None, description="of the hub or registry; without it deliveries are only recorded"
    )
    token: Secret | None = Field(None, description="that the hub lets in by; never shown")
    importance: Importance | None = Field(
        None,
        description="how importance is made of a checkpoint: `delta` to its base model, or "
        "`weight`; if left out, `delta` where there is a base",
    )
    base_model: str | None = Field(
        None, description="the base of models that declare none, by its name on the hub"
    )
    filters: FiltersIO | None = Field(None, description="which models are followed; null for all")
    on_delete: OnDelete = Field(
        "keep", description="what becomes here of models that are deleted there"
    )
    poll_seconds: PollSeconds | None = Field(
        DEFAULT_POLL_S,
        description="how often the hub is looked through for what no delivery told; null for "
        "never, which it is of itself where there is nothing to look through",
    )

    def wanted(self) -> SourceIn:
        """What the service takes."""
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
        )


class SourceChanges(RequestModel):
    """What changes of a source; a field that is absent stays as it is, `null` clears it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"secret": "another one"}]})

    space: str | None = None
    secret: Secret | None = None
    url: Url | None = None
    token: Secret | None = None
    importance: Importance | None = None
    base_model: str | None = None
    filters: FiltersIO | None = None
    on_delete: OnDelete | None = None
    poll_seconds: PollSeconds | None = None

    def wanted(self) -> dict[str, Any]:
        """What the service takes: the fields that were sent."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        for name in ("space", "secret", "on_delete"):
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
    at: datetime
    detail: str


class SourceErrorOut(BaseModel):
    at: datetime
    code: str
    detail: str


class SourceOut(BaseModel):
    """A source, and what has happened of late."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    kind: HubKind
    space: str
    url: str | None
    has_token: bool
    importance: Importance | None
    base_model: str | None
    filters: dict[str, list[str]]
    on_delete: OnDelete
    poll_seconds: int | None
    hook: str = Field(description="where the hub is to deliver: the path on this service")
    created_at: datetime
    updated_at: datetime
    last_delivery_at: datetime | None
    last_refusal: RefusalOut | None = Field(
        description="of a delivery that the secret did not vouch for; one is noted in 30 s"
    )
    last_error: SourceErrorOut | None = Field(description="of a poll, or of an ingestion")
    last_poll: dict[str, Any] | None = Field(description="what the last poll found")
    last_poll_at: datetime | None
    next_poll_at: datetime | None

    @classmethod
    def of(cls, source: SourceRecord) -> SourceOut:
        shown = {
            name: getattr(source, name)
            for name in cls.model_fields
            if name not in {"has_token", "hook", "last_delivery_at"}
        }
        return cls(
            hook=f"/v1/hooks/{source.id}",
            has_token=source.token is not None,
            last_delivery_at=source.last_event_at,
            **shown,
        )


class SourcePage(BaseModel):
    items: list[SourceOut]
    next_cursor: str | None


class HubEventOut(BaseModel):
    """A delivery that was vouched for."""

    model_config = ConfigDict(from_attributes=True)

    delivery_id: str = Field(
        validation_alias="event_id",
        description="the hub's id of it, or a digest where it sent none",
    )
    event: str
    model: str | None
    revision: str | None = Field(description="what it told; ingestion asks the hub")
    outcome: Outcome
    reason: str | None = Field(description="why nobody looks at the model")
    job: str | None = Field(description="the id of the job that does")
    received_at: datetime

    @classmethod
    def of(cls, event: HubEventRecord) -> HubEventOut:
        return cls.model_validate(event)


class HubEventPage(BaseModel):
    items: list[HubEventOut]
    next_cursor: str | None


class ReceiptOut(BaseModel):
    """What became of a delivery."""

    delivery_id: str
    outcome: Outcome
    reason: str | None
    job: str | None
    duplicate: bool = Field(description="it came before, and nothing is new")

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
