"""Records of merges: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Roster, Round

__all__ = [
    "ROUND",
    "CellKey",
    "CellRecord",
    "MergeRecord",
    "MergeState",
    "PartyRecord",
]

MergeState = Literal["joining", "sending", "combining", "done", "failed"]

ROUND: Final = 1
"""The number of a merge's only round, in the headers of its cells."""


@dataclass(frozen=True, slots=True)
class CellKey:
    """The key of a cell within a merge.

    Attributes:
        attempt: the attempt: 0, or 1 after members were left out.
        is_result: whether an aggregator sent it, to all parties.
        shard: the shard, 0 to A - 1.
        place: the sender's place in the roster.
    """

    attempt: int
    is_result: bool
    shard: int
    piece: int
    place: int


@dataclass(frozen=True, slots=True)
class CellRecord:
    """A stored cell: its digest, where it is, and its bytes."""

    key: CellKey
    digest: bytes
    blob_key: str
    size: int


@dataclass(frozen=True, slots=True)
class PartyRecord:
    """A party of a merge.

    Attributes:
        name: the name of a model, or of a neutral party.
        neutral: whether it only aggregates.
        public_key: the X25519 key; None until it joins.
        token_digest: the SHA-256 of its token; None until it joins.
        examples: the number of examples that its model was trained on, if it states it.
        peak: the largest magnitude among its values, if it states it.
        may_aggregate: whether it may hold a shard.
        left_out: the reason why it does not count; None while it does.
        verdict: the last attempt of which it found all cells good, as an aggregator.
    """

    name: str
    neutral: bool
    public_key: bytes | None
    token_digest: bytes | None
    examples: int | None
    peak: float | None
    may_aggregate: bool
    left_out: str | None
    verdict: int | None = None

    @property
    def joined(self) -> bool:
        """Whether it has joined."""
        return self.public_key is not None


@dataclass(frozen=True)
class MergeRecord:
    """A merge as the database knows it.

    Attributes:
        attempt: the attempt: 0, or 1 after members were left out.
        revision: a number that grows with every change that clients can see.
        request: the request that created it, with defaults filled in.
        plan: the values that the parties agree on: M, A and others.
        weights: each member's weight, settled at the creation; None where members bring their own.
        roster: the parties, once joining has ended.
        peak: R of concealed sums, once joining has ended.
        failure: the reason for its failure, once it has failed.
        size: the most bytes that its cells take.
        due_at: the time when the present state ends by itself; None once the merge has ended.
    """

    id: str
    tenant_id: int
    space_id: int
    name: str
    state: MergeState
    attempt: int
    revision: int
    request: Mapping[str, Any]
    plan: Plan
    weights: Mapping[str, float] | None
    roster: Roster | None
    digest: str | None
    peak: float | None
    failure: str | None
    size: int
    created_at: datetime
    due_at: datetime | None
    ended_at: datetime | None

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.ended_at is not None

    def weight(self, party: PartyRecord) -> float:
        """The weight of a member."""
        if self.weights is None:
            return float(party.examples or 1)
        return self.weights[party.name]

    def undecided_aggregators(self, parties: Mapping[str, PartyRecord]) -> list[str]:
        """The aggregators that have not found all cells of this attempt good yet."""
        if self.roster is None:
            return []
        seated = (self.roster.parties[place].id for place in self.roster.seats)
        return sorted(name for name in seated if parties[name].verdict != self.attempt)

    def round(self, parties: Iterable[PartyRecord]) -> Round | None:
        """The round that members send for now; None while it is joined."""
        if self.roster is None:
            return None
        weights = {
            self.roster.place(party.name): self.weight(party)
            for party in parties
            if party.joined and not party.neutral and party.left_out is None
        }
        return Round(ROUND, weights, attempt=self.attempt, peak=self.peak)
