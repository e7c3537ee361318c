"""The JSON of subscriptions and deliveries. Requests are validated strictly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from app.infra.egress.addresses import MAX_URL_LENGTH
from app.infra.http.fields import CreatedAt, NextCursor, UpdatedAt
from app.infra.http.schemas import RequestModel, ResponseModel, Text, refuse_nul
from app.webhooks.repositories.deliveries import Delivery
from app.webhooks.repositories.subscriptions import Subscription
from app.webhooks.service import SubscriptionIn
from modelkin._validation import check_model_name, check_space_name, check_tags

__all__ = [
    "DeliveryOut",
    "DeliveryPage",
    "SubscriptionChange",
    "SubscriptionCreated",
    "SubscriptionNew",
    "SubscriptionOut",
    "SubscriptionPage",
]

EventType = Literal[
    "support.stored",
    "neighbors.changed",
    "clustering.completed",
    "lineage.mismatch",
    "merge.joining",
    "merge.completed",
    "merge.failed",
    "learngene.published",
    "model.duplicate",
    "anatomy.changed",
    "fingerprint.stored",
    "fingerprint.removed",
    "report.ready",
]


Url = Annotated[str, Field(min_length=1, max_length=MAX_URL_LENGTH), AfterValidator(refuse_nul)]
Events = Annotated[list[EventType], Field(min_length=1, max_length=len(get_args(EventType)))]


class _Fields(RequestModel):
    space: str | None = Field(
        None,
        description="only events of this space, which may not exist yet; all by default, and those "
        "of fingerprints, which are in no space",
    )
    model: str | None = Field(
        None,
        description="only events about this model, and pairs of neighbors.changed that it is in, "
        "whichever of the two changed; clusterings are sent whatever it says",
    )
    tag: str | None = Field(
        None,
        description="only events about models with this tag, and pairs of neighbors.changed with "
        "such a model; clusterings are always sent",
    )
    threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="of neighbors.changed: the similarity S that a pair has to cross; 0.5 by "
        "default",
    )
    description: Text | None = Field(None, description="for people")

    def to_fields(self) -> dict[str, Any]:
        """The fields of the request, with valid names."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if given.get("space") is not None:
            given["space"] = check_space_name(given["space"])
        if given.get("model") is not None:
            given["model"] = check_model_name(given["model"], field="model")
        if given.get("tag") is not None:
            [given["tag"]] = check_tags([given["tag"]], field="tag")
        if "events" in given:
            given["events"] = tuple(dict.fromkeys(given["events"]))
        return given


class SubscriptionNew(_Fields):
    """The fields of a new subscription."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "url": "https://receiver.example/modelkin",
                    "events": ["support.stored", "neighbors.changed"],
                    "space": "digits-mlp",
                    "threshold": 0.6,
                }
            ]
        }
    )

    url: Url = Field(description="where events are sent, http or https, on the public internet")
    events: Events = Field(description="the types of events to send")

    def to_subscription(self) -> SubscriptionIn:
        """The fields for the service."""
        return SubscriptionIn(**self.to_fields())


class SubscriptionChange(_Fields):
    """The fields to change; an absent field stays as it is, and `null` clears one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"enabled": True}]})

    url: Url | None = Field(None, description="where events are sent from now on")
    events: Events | None = Field(None, description="the types of events to send from now on")
    enabled: bool | None = Field(
        None, description="true also resets the failures, and sends pending deliveries at once"
    )

    @field_validator("url", "events", "enabled", mode="before")
    @classmethod
    def _refuse_null(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("must not be null: leave it out to keep it")
        return value


class FailureOut(ResponseModel):
    at: datetime = Field(description="when the attempt was made, in UTC")
    status: int | None = Field(description="of the answer; null without an answer")
    detail: str = Field(description="the receiver's answer, or why there was none")


class SubscriptionOut(ResponseModel):
    """A subscription, without its secret."""

    id: str = Field(description="made by the service, for paths")
    url: str = Field(description="where events are sent")
    events: list[EventType] = Field(description="the types of events that are sent")
    space: str | None = Field(description="only events of this space; null for all")
    model: str | None = Field(description="only events about this model; null for all")
    tag: str | None = Field(description="only events about models with this tag; null for all")
    threshold: float | None = Field(
        description="of neighbors.changed: the S that a pair has to cross; null without"
    )
    description: str | None = Field(description="for people; null without one")
    enabled: bool = Field(description="whether events are sent")
    disabled_reason: str | None = Field(description="why the service disabled it; else null")
    previous_secret_until: datetime | None = Field(
        validation_alias="previous_until",
        description="until when a secret from before a rotation still signs",
    )
    failures: int = Field(description="failed attempts since the last success")
    failing_since: datetime | None = Field(
        description="when the first of these failures was; null without any"
    )
    paused_until: datetime | None = Field(
        description="nothing is sent before: the receiver asked for a delay, or did not answer"
    )
    last_success_at: datetime | None = Field(
        description="when an attempt succeeded last; null before the first"
    )
    last_failure: FailureOut | None = Field(description="the last failed attempt; null without one")
    created_at: CreatedAt
    updated_at: UpdatedAt

    @classmethod
    def of(cls, subscription: Subscription) -> SubscriptionOut:
        shown = cls.model_validate(subscription)
        now = datetime.now(UTC)
        if shown.paused_until is not None and shown.paused_until <= now:
            shown.paused_until = None
        if shown.previous_secret_until is not None and shown.previous_secret_until <= now:
            shown.previous_secret_until = None
        return shown


class SubscriptionCreated(SubscriptionOut):
    """A subscription with its secret, which only this answer contains."""

    secret: str = Field(description="`whsec_...`: signs its events")

    @classmethod
    def with_secret(cls, subscription: Subscription, secret: str) -> SubscriptionCreated:
        shown = SubscriptionOut.of(subscription).model_dump()
        shown["previous_until"] = shown.pop("previous_secret_until")
        return cls.model_validate({**shown, "secret": secret})


class SubscriptionPage(ResponseModel):
    items: list[SubscriptionOut] = Field(description="the newest first")
    next_cursor: NextCursor


class AttemptOut(ResponseModel):
    at: datetime = Field(description="when it was made, in UTC")
    seconds: float = Field(description="that it took")
    status: int | None = Field(description="of the answer; null without an answer")
    detail: str = Field(description="the receiver's answer, or why there was no answer")


class DeliveryOut(ResponseModel):
    """One event for one subscription, and its outcome."""

    id: str = Field(description="the `webhook-id`, the same for every attempt and replay")
    subscription: str = Field(
        validation_alias="subscription_id", description="the id of the subscription"
    )
    type: str = Field(description="of the event, such as `support.stored`")
    event: str = Field(
        validation_alias="event_id", description="the same for all subscriptions that receive it"
    )
    model: str | None = Field(
        description="the model that it is about; null for an event of a space, and for a ping"
    )
    state: Literal["pending", "succeeded", "failed"] = Field(
        description="`pending` while attempts go on, else how it ended"
    )
    attempts: int = Field(description="since it was created or last replayed")
    next_attempt_at: datetime | None = Field(
        validation_alias="due_at",
        description="null if none is planned, as while the subscription is disabled",
    )
    log: list[AttemptOut] = Field(description="the last 20 attempts, the oldest first")
    payload: str = Field(description="the body as it is sent and signed")
    created_at: CreatedAt
    finished_at: datetime | None = Field(
        description="when it succeeded or failed, in UTC; null before"
    )

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryOut:
        fields = {n: getattr(delivery, n) for n in Delivery.__dataclass_fields__ if n != "body"}
        return cls.model_validate(
            {**fields, "model": delivery.model, "payload": delivery.body.decode()}
        )


class DeliveryPage(ResponseModel):
    items: list[DeliveryOut] = Field(description="the newest first")
    next_cursor: NextCursor
