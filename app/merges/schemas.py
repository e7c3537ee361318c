"""The JSON of merges: strict requests, and answers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.infra.http.fields import CreatedAt, NextCursor
from app.infra.http.schemas import RequestModel, ResponseModel, Text
from app.merges.records import MergeRecord, PartyRecord
from app.merges.request import MAX_DEADLINE_S, MAX_MEMBERS, MIN_DEADLINE_S, MergeRequest
from app.merges.service import Joining
from app.models.spaces.records import SpaceRecord
from modelkin.errors import InvalidParameter
from modelkin.federation.layouts import MOST_EXACT
from modelkin.federation.shards.public_keys import check_public_key

__all__ = [
    "CellOut",
    "JoinIn",
    "JoinOut",
    "MergeIn",
    "MergeOut",
    "MergePage",
    "MergeSummary",
    "VerdictIn",
]

State = Literal["joining", "sending", "combining", "done", "failed"]
_MOST_PEAK = 2.0**63


class MergeIn(RequestModel):
    """A merge to be: exactly one of `members`, `donors_of` and `clustering` says who is in it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"donors_of": "org/newcomer", "k": 5, "deadline": 3600}]}
    )

    members: list[Text] | None = Field(None, max_length=MAX_MEMBERS, description="names of models")
    donors_of: Text | None = Field(
        None, description="a model: its best donors are the members, with their weights"
    )
    k: int = Field(10, ge=1, le=MAX_MEMBERS, description="of donors_of: how many donors")
    clustering: str | None = Field(
        None, max_length=100, description="the id of a clustering, or `latest`"
    )
    cluster: int | None = Field(None, ge=0, description="whose models are the members")
    aggregators: int | None = Field(
        None,
        ge=1,
        le=MAX_MEMBERS,
        description="shards, each with a party that averages it; by default 4, or fewer where one "
        "absent member would leave too few parties",
    )
    weights: Literal["donors", "examples", "equal"] | dict[Text, float] | None = Field(
        None,
        description="a weight by name, or: donors, as the service ranks them now; examples, as the "
        "members say when they join; equal. By default donors for donors_of, else examples",
    )
    of: Literal["weights", "delta"] = Field(
        "weights", description="what is averaged: weights, or differences to a base that all have"
    )
    conceal: bool = Field(True, description="whether an aggregator sees sums alone")
    one_in: int = Field(1, ge=1, le=2**31, description="of=delta: of c values one is sent")
    min_members: int = Field(3, ge=1, le=MAX_MEMBERS, description="fewer are not averaged")
    deadline: int = Field(
        3600,
        ge=MIN_DEADLINE_S,
        le=MAX_DEADLINE_S,
        description="seconds for joining, and again for sending and for combining",
    )

    def to_request(self) -> MergeRequest:
        """The request, not checked yet."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        if self.members is not None:
            fields["members"] = tuple(self.members)
        return MergeRequest(**fields)


class JoinIn(RequestModel):
    """What a party brings. Its values stay with it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "public_key": "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
                    "token_digest": 16 * "1f3c",
                    "examples": 200,
                    "peak": 0.8,
                }
            ]
        }
    )

    public_key: Annotated[str, Field(max_length=100, description="X25519, 32 bytes in base64")]
    token_digest: Annotated[
        str,
        Field(
            pattern="^[0-9a-f]{64}$",
            description="SHA-256, in hexadecimal, of a random token that the party keeps for the "
            "`Member-Token` header of its requests",
        ),
    ]
    examples: int | None = Field(
        None, ge=1, le=MOST_EXACT, description="that the model was trained on: its weight"
    )
    peak: float | None = Field(
        None, ge=0, le=_MOST_PEAK, description="the largest magnitude of what it will send"
    )
    may_aggregate: bool = Field(True, description="whether it may hold a shard")
    neutral: bool = Field(False, description="aggregate alone, without a model in the average")

    def joining(self) -> Joining:
        """The values, decoded.

        Raises:
            InvalidParameter: the key is not 32 bytes in base64, or no key of a party.
        """
        try:
            key = base64.b64decode(self.public_key, validate=True)
        except (ValueError, binascii.Error):
            key = b""
        if len(key) != 32:
            raise InvalidParameter("public_key must be 32 bytes in base64", field="public_key")
        check_public_key(key)
        digest = bytes.fromhex(self.token_digest)
        return Joining(key, digest, self.examples, self.peak, self.may_aggregate, self.neutral)


class VerdictIn(RequestModel):
    """What an aggregator finds of the cells of its shards; without a reason, that all are good."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"attempt": 0, "members": {"org/b": "a value is not finite"}}]
        }
    )

    attempt: int = Field(
        ge=0, le=1, description="that its cells are of: 0, or 1 once members were left out"
    )
    members: dict[Text, Text] = Field(
        default_factory=dict, max_length=MAX_MEMBERS, description="why, by the member's name"
    )
    failed: Text | None = Field(None, description="why, where no member can be named")


class JoinOut(ResponseModel):
    """The party has joined."""

    merge: str = Field(description="the name of the merge")
    model: str = Field(description="the name of the party")


class CellOut(ResponseModel):
    """A cell is stored."""

    attempt: int = Field(description="0, or 1 after members were left out")
    shard: int = Field(description="the shard that it is of, from 0")
    piece: int = Field(description="the piece of the shard, from 0")
    size: int = Field(description="its bytes")


class PartyOut(ResponseModel):
    """A party of a merge."""

    name: str = Field(description="of a model, or of a neutral party")
    joined: bool = Field(description="whether it has joined")
    neutral: bool = Field(description="whether it aggregates alone, without a model in the average")
    may_aggregate: bool = Field(description="whether it may hold a shard")
    weight: float | None = Field(description="null until it is known, and of a neutral party")
    decided: bool = Field(description="whether it found all cells of this attempt good")
    left_out: str | None = Field(description="why it does not count; null while it does")

    @classmethod
    def of(cls, merge: MergeRecord, party: PartyRecord) -> PartyOut:
        """The party as clients see it."""
        known = merge.weights is not None or party.joined
        return cls(
            name=party.name,
            joined=party.joined,
            neutral=party.neutral,
            may_aggregate=party.may_aggregate,
            weight=merge.weight(party) if known and not party.neutral else None,
            decided=party.verdict == merge.attempt,
            left_out=party.left_out,
        )


class MergeSummary(ResponseModel):
    """A merge without its parties."""

    name: str = Field(description="unique in its space")
    space: str = Field(description="the space whose models are averaged")
    state: State = Field(description="what it waits for, or how it ended")
    attempt: int = Field(description="0, or 1 after members were left out")
    revision: int = Field(description="grows with every change")
    request: dict[str, Any] = Field(description="what it was created with, defaults included")
    digest: str | None = Field(description="of the roster: parties compare it; null while joining")
    failure: str | None = Field(description="why it failed; null where it did not")
    created_at: CreatedAt
    due_at: datetime | None = Field(description="when the state ends by itself; null at the end")
    ended_at: datetime | None = Field(description="when it was done or failed, in UTC; null before")

    @classmethod
    def summary(cls, space: SpaceRecord, merge: MergeRecord) -> MergeSummary:
        """The merge as a listing shows it."""
        return cls(**_summary(space, merge))


class MergeOut(MergeSummary):
    """A merge: all that a party needs to take part in it."""

    plan: dict[str, Any] = Field(description="M, A and all else that the parties agree on")
    parties: list[PartyOut] = Field(description="members and neutral parties, by name")
    awaited: list[str] = Field(description="the parties that the present state waits for")
    roster: dict[str, Any] | None = Field(
        description="plan, parties in their order, and keys; null while joining"
    )
    peak: float | None = Field(description="R of concealed sums; null otherwise")

    @classmethod
    def of(
        cls,
        space: SpaceRecord,
        merge: MergeRecord,
        parties: Mapping[str, PartyRecord],
        awaited: Iterable[str],
    ) -> MergeOut:
        """The merge as clients see it."""
        return cls(
            **_summary(space, merge),
            plan=merge.plan.to_json(),
            parties=[PartyOut.of(merge, party) for party in parties.values()],
            awaited=list(awaited),
            roster=None if merge.roster is None else merge.roster.to_json(),
            peak=merge.peak,
        )


class MergePage(ResponseModel):
    """A page of merges."""

    items: list[MergeSummary] = Field(description="the newest first")
    next_cursor: NextCursor


def _summary(space: SpaceRecord, merge: MergeRecord) -> dict[str, Any]:
    return {
        "name": merge.name,
        "space": space.name,
        "state": merge.state,
        "attempt": merge.attempt,
        "revision": merge.revision,
        "request": dict(merge.request),
        "digest": merge.digest,
        "failure": merge.failure,
        "created_at": merge.created_at,
        "due_at": merge.due_at,
        "ended_at": merge.ended_at,
    }
