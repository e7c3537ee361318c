"""The JSON of API keys: strict requests, and answers that never hold a stored key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from app.infra.http.fields import CreatedAt, NextCursor
from app.infra.http.schemas import RequestModel, ResponseModel
from app.tenancy.auth.records import Identity, KeyRecord
from app.tenancy.auth.service import MAX_LABEL_LENGTH

__all__ = ["KeyCreated", "KeyNew", "KeyOut", "KeyPage"]

Scope = Literal["read", "write", "metrics", "values", "admin"]

_MAX_SECONDS = 10 * 366 * 24 * 3600


def _storable(label: str) -> str:
    if not label.isprintable():
        raise ValueError("a label has printable characters alone")
    return label


class KeyNew(RequestModel):
    """A new key."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"label": "training", "scopes": ["read", "write"], "valid_for_seconds": 7776000}
            ]
        }
    )

    label: Annotated[str, Field(max_length=MAX_LABEL_LENGTH), AfterValidator(_storable)] = Field(
        "", description="what it is for"
    )
    scopes: list[Scope] = Field(
        default=["read", "write"],
        min_length=1,
        max_length=5,
        description="what it may do; at most what the key of this request may do",
    )
    valid_for_seconds: int | None = Field(
        None, ge=1, le=_MAX_SECONDS, description="null until it is revoked"
    )

    @property
    def valid_for(self) -> timedelta | None:
        """The time for which the key is valid."""
        seconds = self.valid_for_seconds
        return None if seconds is None else timedelta(seconds=seconds)


class KeyOut(ResponseModel):
    """A key without its secret part."""

    prefix: str = Field(description="its first characters, by which it is named")
    label: str = Field(description="what it is for; empty where that was not said")
    scopes: list[Scope] = Field(description="what it may do, in order of the alphabet")
    state: Literal["valid", "expired", "revoked"] = Field(description="whether it opens anything")
    current: bool = Field(description="whether this request carries it")
    created_at: CreatedAt
    expires_at: datetime | None = Field(description="when it ends by itself; null for never")
    revoked_at: datetime | None = Field(description="when it was revoked; null where it was not")
    last_used_at: datetime | None = Field(
        description="the hour of its last use, or `created_at` if that is in this hour; written "
        "down within minutes; null before its first"
    )

    @classmethod
    def of(cls, key: KeyRecord, caller: Identity) -> KeyOut:
        """The key as its tenant sees it."""
        return cls(**_key_fields(key, caller))


class KeyCreated(KeyOut):
    """A new key, with its secret part."""

    key: str = Field(description="keep it: no other answer has it")

    @classmethod
    def with_secret(cls, record: KeyRecord, caller: Identity, key: str) -> KeyCreated:
        """The new key, with its secret part this one time."""
        return cls(**_key_fields(record, caller), key=key)


class KeyPage(ResponseModel):
    """A page of keys."""

    items: list[KeyOut] = Field(description="the newest first")
    next_cursor: NextCursor


def _key_fields(key: KeyRecord, caller: Identity) -> dict[str, object]:
    return {
        "prefix": key.prefix,
        "label": key.label,
        "scopes": sorted(key.scopes),
        "state": key.state_at(datetime.now(UTC)),
        "current": key.id == caller.key_id,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    }
