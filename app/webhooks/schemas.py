"""The JSON of subscriptions and deliveries: what is taken, strictly, and what is answered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from app.infra.egress.addresses import MAX_URL
from app.infra.http.schemas import RequestModel, ResponseModel
from app.webhooks.delivery_repository import Delivery
from app.webhooks.repository import Subscription
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
    "support.stored", "neighbors.changed", "clustering.completed", "lineage.mismatch"
]


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("NUL cannot be stored")
    return value


Text = Annotated[str, Field(max_length=2000), AfterValidator(_no_nul)]
Url = Annotated[str, Field(min_length=1, max_length=MAX_URL), AfterValidator(_no_nul)]
Events = Annotated[list[EventType], Field(min_length=1, max_length=4)]


class _Fields(RequestModel):
    space: str | None = Field(
        None, description="only of this space, which may come later; all by default"
    )
    model: str | None = Field(
        None, description="only about this model; clusterings are told of whatever it says"
    )
    tag: str | None = Field(None, description="only about models that carry this tag; likewise")
    threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="of neighbors.changed: the similarity S that a pair has to cross; .5 by "
        "default",
    )
    description: Text | None = None

    def given(self) -> dict[str, Any]:
        """What the request says, names checked."""
        told = {name: getattr(self, name) for name in self.model_fields_set}
        if told.get("space") is not None:
            told["space"] = check_space_name(told["space"])
        if told.get("model") is not None:
            told["model"] = check_model_name(told["model"], field="model")
        if told.get("tag") is not None:
            [told["tag"]] = check_tags([told["tag"]], field="tag")
        if "events" in told:
            told["events"] = tuple(dict.fromkeys(told["events"]))
        return told


class SubscriptionNew(_Fields):
    """A subscription to make."""

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
    events: Events

    def wanted(self) -> SubscriptionIn:
        """The subscription."""
        return SubscriptionIn(**self.given())


class SubscriptionChange(_Fields):
    """What is to be another; a field that is absent stays as it is, `null` clears one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"enabled": True}]})

    url: Url | None = None
    events: Events | None = None
    enabled: bool | None = Field(
        None, description="true also forgets what has failed; what waits is sent at once"
    )

    @field_validator("url", "events", "enabled", mode="before")
    @classmethod
    def _needed(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("it cannot be null: leave it out to keep it")
        return value


class FailureOut(ResponseModel):
    at: datetime
    status: int | None = Field(description="of the answer; null where there was none")
    detail: str


class SubscriptionOut(ResponseModel):
    """A subscription, without its secret."""

    id: str
    url: str
    events: list[EventType]
    space: str | None
    model: str | None
    tag: str | None
    threshold: float | None
    description: str | None
    enabled: bool
    disabled_reason: str | None = Field(description="why the service disabled it by itself")
    previous_secret_until: datetime | None = Field(
        validation_alias="previous_until",
        description="until when any secret from before a rotation signs as well",
    )
    failures: int = Field(description="attempts that have failed since the last one that did not")
    failing_since: datetime | None
    paused_until: datetime | None = Field(
        description="nothing is sent before: its receiver asked for that, or did not answer"
    )
    last_success_at: datetime | None
    last_failure: FailureOut | None
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, subscription: Subscription) -> SubscriptionOut:
        told = cls.model_validate(subscription)
        now = datetime.now(UTC)
        if told.paused_until is not None and told.paused_until <= now:
            told.paused_until = None
        if told.previous_secret_until is not None and told.previous_secret_until <= now:
            told.previous_secret_until = None
        return told


class SubscriptionCreated(SubscriptionOut):
    """A subscription, and its secret, which is told this once."""

    secret: str = Field(description="`whsec_...`: what its events are signed with")

    @classmethod
    def with_secret(cls, subscription: Subscription, secret: str) -> SubscriptionCreated:
        told = SubscriptionOut.of(subscription).model_dump()
        told["previous_until"] = told.pop("previous_secret_until")
        return cls.model_validate({**told, "secret": secret})


class SubscriptionPage(ResponseModel):
    items: list[SubscriptionOut]
    next_cursor: str | None


class AttemptOut(ResponseModel):
    at: datetime
    seconds: float
    status: int | None = Field(description="of the answer; null where there was none")
    detail: str = Field(description="what the receiver said, or why nothing came")


class DeliveryOut(ResponseModel):
    """One event for one subscription, and what came of it."""

    id: str = Field(description="the `webhook-id`, the same for every attempt and replay")
    subscription: str = Field(validation_alias="subscription_id")
    type: str
    event: str = Field(
        validation_alias="event_id", description="the same for all who are told of it"
    )
    state: Literal["pending", "succeeded", "failed"]
    attempts: int = Field(description="since it began, or was last replayed")
    next_attempt_at: datetime | None = Field(
        validation_alias="due_at", description="null where none is to be made, as while disabled"
    )
    log: list[AttemptOut] = Field(description="of the last 20 attempts, the oldest first")
    payload: str = Field(description="the body, as it is sent and signed")
    created_at: datetime
    finished_at: datetime | None

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryOut:
        fields = {n: getattr(delivery, n) for n in Delivery.__dataclass_fields__ if n != "body"}
        return cls.model_validate({**fields, "payload": delivery.body.decode()})


class DeliveryPage(ResponseModel):
    items: list[DeliveryOut]
    next_cursor: str | None
